"""Transform the graph of a MetaGraph, and keep its collections consistent with the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from mobileprep.core.files import atomic_writer
from mobileprep.errors import CorruptFileError
from mobileprep.formats.protos import saved_model_pb2 as pb
from mobileprep.formats.saved_model import MetaGraph
from mobileprep.formats.wire import field_header
from mobileprep.graph.files import check_serialized_size
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.serde import graph_from_proto, graph_to_chunks

TRAINABLE: Final = "_trainable"
"""Attribute of a new variable that an optimizer is to train."""
_EVERY: Final = "variables"
_TRAINED: Final = "trainable_variables"
_OF_VARIABLES: Final = frozenset(
    {_EVERY, _TRAINED, "model_variables", "moving_average_variables", "local_variables"}
)
_GRAPH_FIELD: Final = 2


def graph_of(meta: MetaGraph) -> Graph:
    """Return the graph of a MetaGraph."""
    return graph_from_proto(meta.proto.graph_def, meta.payloads, meta.file)


def write_meta_graph(path: Path, meta: MetaGraph, before: Graph, after: Graph) -> None:
    """Write a MetaGraph with another graph.

    New variables are added to the collections, and removed nodes are removed from them. With new
    variables, the saver is omitted: ``import_meta_graph`` then creates one for all variables.

    Raises:
        CorruptFileError: a collection of variables is damaged.
        ArtifactError: the file cannot be written, or would exceed protobuf's limit of 2 GiB.
    """
    proto = pb.MetaGraphDef()
    proto.CopyFrom(meta.proto)
    proto.ClearField("graph_def")
    proto.meta_info_def.SetInParent()  # Files are recognized by this field, which comes first.
    _drop_gone(proto, after, meta.file)
    new = [n for n in after if n.op == "VariableV2" and n.name not in before]
    variables = [v for n in new if (v := _definition(after, n)) is not None]
    for variable in variables:
        record = variable.SerializeToString(deterministic=True)
        for key in (_EVERY, _TRAINED) if variable.trainable else (_EVERY,):
            proto.collection_def[key].bytes_list.value.append(record)
    if variables:
        proto.ClearField("saver_def")
    chunks = list(graph_to_chunks(after))
    size = sum(map(len, chunks))
    head = proto.SerializeToString(deterministic=True) + field_header(_GRAPH_FIELD, size)
    check_serialized_size(len(head) + size, str(path))
    with atomic_writer(path) as stream:
        stream.writelines([head, *chunks])


def _definition(graph: Graph, node: Node) -> pb.VariableDef | None:
    """Return the record of a variable with the nodes that ``tf.get_variable`` adds."""
    assign, read = graph.get(f"{node.name}/Assign"), graph.get(f"{node.name}/read")
    if assign is None or read is None or len(assign.data_inputs) != 2:
        return None
    return pb.VariableDef(
        variable_name=f"{node.name}:0",
        initializer_name=assign.name,
        snapshot_name=f"{read.name}:0",
        initial_value_name=f"{assign.data_inputs[1].node}:0",
        trainable=TRAINABLE in node.attrs,
    )


def _drop_gone(proto: pb.MetaGraphDef, graph: Graph, file: str) -> None:
    """Remove the nodes from collections that the graph does not have."""
    for key, collection in proto.collection_def.items():
        kind = collection.WhichOneof("kind")
        if kind == "node_list":
            names = collection.node_list.value
            names[:] = [name for name in names if parse_ref(name).node in graph]
        elif kind == "bytes_list" and key in _OF_VARIABLES:
            records = collection.bytes_list.value
            records[:] = [record for record in records if _variable(record, file) in graph]


def _variable(record: bytes, file: str) -> str:
    """Return the name of the node of a variable."""
    try:
        return parse_ref(pb.VariableDef.FromString(record).variable_name).node
    except DecodeError as error:
        message = "a collection of variables has a record that is not a VariableDef"
        raise CorruptFileError(message, "the file is damaged", file) from error
