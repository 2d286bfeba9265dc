"""Checkpoint keys of variables by the object graph that TensorFlow 2 saves beside them."""

from __future__ import annotations

from collections import Counter
from typing import Final

from google.protobuf.message import DecodeError

from mobileprep.errors import CorruptFileError
from mobileprep.formats.checkpoint import Checkpoint
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import saved_model_pb2 as pb
from mobileprep.freezing.restore import SavedValue
from mobileprep.freezing.trace import variables_of
from mobileprep.ir.graph import Graph

_OBJECT_GRAPH: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"


def keys_by_full_name(checkpoint: Checkpoint, graph: Graph) -> dict[str, SavedValue]:
    """For each variable node its key, where the object graph names it without doubt.

    A name that two variables or two objects share tells nothing, nor does one of another type;
    such variables are found by the graph's restore ops alone.

    Raises:
        CorruptFileError: the object graph is damaged.
    """
    if _OBJECT_GRAPH not in checkpoint:
        return {}
    if checkpoint.entry(_OBJECT_GRAPH).dtype is not DType.STRING:
        return {}
    record = checkpoint.read(_OBJECT_GRAPH).ravel()
    objects = pb.TrackableObjectGraph()
    try:
        objects.ParseFromString(b"".join(record))
    except DecodeError as error:
        message = "the graph of saved objects is damaged"
        raise CorruptFileError(
            message, "save the checkpoint again", str(checkpoint.prefix)
        ) from error
    saved: dict[str, set[str]] = {}
    for item in objects.nodes:
        for attribute in item.attributes:
            if attribute.full_name:
                saved.setdefault(attribute.full_name, set()).add(attribute.checkpoint_key)
    variables = [(n, n.attr_str("shared_name", "") or n.name) for n in variables_of(graph)]
    shared = Counter(name for _, name in variables)
    found: dict[str, SavedValue] = {}
    for node, name in variables:
        keys = saved.get(name, ())
        if shared[name] == 1 and len(keys) == 1:
            (key,) = keys
            # Paths of assets lie in variables that have no names and are not saved.
            if key in checkpoint and checkpoint.entry(key).dtype is node.attr_dtype("dtype").base:
                found[node.name] = SavedValue(key)
    return found
