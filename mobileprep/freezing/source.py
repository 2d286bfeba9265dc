"""Load a model from the files that training or exporting created."""

from __future__ import annotations

import glob
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message
from msgspec.structs import replace

from mobileprep.core.files import inside
from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.formats.checkpoint import Checkpoint, open_checkpoint
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import saved_model_pb2 as pb
from mobileprep.formats.saved_model import (
    ASSETS_FOLDER,
    VARIABLES_PREFIX,
    MetaGraph,
    read_meta_graph,
    read_saved_model,
    read_saver,
    saved_model_file,
)
from mobileprep.formats.wire import BYTES, Buffer, Cursor
from mobileprep.freezing.model import Asset, LoadedSource, SavedValue, Signature, TensorSpec
from mobileprep.freezing.trace import variables_of
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node_serde import shape_from_proto
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.serde import graph_from_proto

__all__ = ["LoadedSource", "load_source"]


def load_source(
    *,
    graph: Path | None = None,
    meta_graph: Path | None = None,
    saved_model: Path | None = None,
    checkpoint: Path | None = None,
    saver: Path | None = None,
    tags: Sequence[str] = (),
) -> LoadedSource:
    """Load a model from exactly one of ``graph``, ``meta_graph``, and ``saved_model``.

    Args:
        checkpoint: checkpoint with the variables: a prefix, any file of the set, or a directory.
            Default: the checkpoint next to a MetaGraph, or in a SavedModel.

    Raises:
        UsageError: if not exactly one model is named.
    """
    models = [p for p in (graph, meta_graph, saved_model) if p is not None]
    if len(models) != 1:
        message = f"{len(models)} of a graph, a meta graph and a saved model are named"
        raise UsageError(message, "name exactly one")
    if graph is not None:
        loaded = _from_graph(graph, checkpoint)
    elif meta_graph is not None:
        loaded = _from_meta_graph(meta_graph, checkpoint)
    else:
        loaded = _from_saved_model(models[0], tags, checkpoint)
    if saver is None:
        return loaded
    return replace(loaded, restore_op=read_saver(saver).restore_op_name)


def _from_graph(path: Path, checkpoint: Path | None) -> LoadedSource:
    graph, opened = read_graph(path), _opened(checkpoint)
    keys = _keys(opened, graph)
    return LoadedSource(graph, str(path), opened, keys=keys)


def _from_meta_graph(path: Path, checkpoint: Path | None) -> LoadedSource:
    meta = read_meta_graph(path)
    beside = path.with_suffix("") if path.suffix == ".meta" else None
    if checkpoint is None and beside is not None and _is_checkpoint(beside):
        checkpoint = beside
    return _loaded(meta, _opened(checkpoint), path.parent / ASSETS_FOLDER)


def _from_saved_model(folder: Path, tags: Sequence[str], checkpoint: Path | None) -> LoadedSource:
    root = saved_model_file(folder).parent
    meta = read_saved_model(folder, tags)
    inside = root / VARIABLES_PREFIX
    if checkpoint is None and _is_checkpoint(inside):
        checkpoint = inside
    return _loaded(meta, _opened(checkpoint), root / ASSETS_FOLDER)


def _loaded(meta: MetaGraph, checkpoint: Checkpoint | None, assets: Path) -> LoadedSource:
    proto = meta.proto
    graph = graph_from_proto(proto.graph_def, meta.payloads, meta.file)
    keys = {**_keys(checkpoint, graph), **slices_of(proto, meta.file)}
    return LoadedSource(
        graph,
        meta.file,
        checkpoint,
        signatures_of(proto),
        proto.saver_def.restore_op_name,
        init_ops_of(proto),
        assets_of(proto, assets, meta.file),
        keys,
    )


def _keys(checkpoint: Checkpoint | None, graph: Graph) -> dict[str, SavedValue]:
    """Return the locations of variables that follow from the checkpoint itself."""
    if checkpoint is None:
        return {}
    return {**slices_by_name(checkpoint, graph), **keys_by_full_name(checkpoint, graph)}


def _opened(checkpoint: Path | None) -> Checkpoint | None:
    return None if checkpoint is None else open_checkpoint(checkpoint)


def _is_checkpoint(prefix: Path) -> bool:
    """Return whether a checkpoint of either format has this prefix."""
    if prefix.with_name(f"{prefix.name}.index").is_file() or prefix.is_file():
        return True
    return any(prefix.parent.glob(f"{glob.escape(prefix.name)}-?????-of-?????"))


BUNDLE_COLLECTION: Final = "serving_signatures"
_DEFAULT: Final = "serving_default"
_REGRESSION, _CLASSIFICATION, _GENERIC = 1, 2, 3


def bundle_signatures(messages: Iterable[bytes]) -> dict[str, Signature]:
    """Return the signature of a session bundle; none if it cannot be read.

    The named signatures ``inputs`` and ``outputs`` map names to tensors, as apps need it. They have
    precedence over the default signature, whose input is serialized examples.
    """
    for message in messages:
        try:
            signature = _read(message)
        except (CorruptFileError, UnicodeDecodeError):
            continue  # Models can be used without the signature.
        if signature is not None:
            return {_DEFAULT: signature}
    return {}


def _read(message: bytes) -> Signature | None:
    named: dict[str, dict[str, TensorSpec]] = {}
    default: Signature | None = None
    for number, content in _fields(message):
        if number == 1:
            default = _default(content)
        elif number == 2:
            name, value = _entry(content)
            for kind, generic in _fields(value):
                if kind == _GENERIC:
                    named[name] = dict(_bindings(generic))
    if named.get("inputs") and named.get("outputs"):
        return Signature(named["inputs"], named["outputs"])
    return default


def _default(content: Buffer) -> Signature | None:
    for kind, fields in _fields(content):
        tensors = {number: _binding(value) for number, value in _fields(fields)}
        if kind == _REGRESSION:
            outputs = {"outputs": tensors.get(2)}
        elif kind == _CLASSIFICATION:
            outputs = {"classes": tensors.get(2), "scores": tensors.get(3)}
        else:
            continue
        specs = {name: spec for name, spec in outputs.items() if spec is not None}
        if 1 in tensors and specs:
            return Signature({"inputs": tensors[1]}, specs)
    return None


def _bindings(generic: Buffer) -> Iterator[tuple[str, TensorSpec]]:
    for _, entry in _fields(generic):
        name, value = _entry(entry)
        yield name, _binding(value)


def _binding(content: Buffer) -> TensorSpec:
    return TensorSpec("".join(bytes(v).decode() for number, v in _fields(content) if number == 1))


def _entry(content: Buffer) -> tuple[str, Buffer]:
    """Return the key and the value of a map entry."""
    fields = dict(_fields(content))
    return bytes(fields.get(1, b"")).decode(), fields.get(2, b"")


def _fields(content: Buffer) -> Iterator[tuple[int, Buffer]]:
    cursor = Cursor(content)
    while cursor:
        tag = cursor.varint()
        if tag & 7 != BYTES:
            msg = "a signature has a field that is not a message"
            raise cursor.corrupt(msg)
        yield tag >> 3, cursor.take(cursor.varint())


# The signature with the init op of TensorFlow 2, and the collections of TensorFlow 1.
INIT_SIGNATURE: Final = "__saved_model_init_op"
_INIT_COLLECTIONS: Final = ("saved_model_main_op", "legacy_init_op", "serving_init_op")
_ASSET_COLLECTIONS: Final = ("saved_model_assets", "serving_assets")
_VARIABLE_COLLECTIONS: Final = (
    "variables",
    "trainable_variables",
    "model_variables",
    "moving_average_variables",
)

M = TypeVar("M", bound=Message)


def signatures_of(proto: pb.MetaGraphDef) -> dict[str, Signature]:
    """Return the signatures by name, sorted; parts of an argument are separate tensors.

    If there are none, return those of a session bundle, the export format before SavedModel.
    """
    if not proto.signature_def and BUNDLE_COLLECTION in proto.collection_def:
        listed = proto.collection_def[BUNDLE_COLLECTION].any_list.value
        return bundle_signatures([any_proto.value for any_proto in listed])
    return {
        name: Signature(
            _specs(proto.signature_def[name].inputs), _specs(proto.signature_def[name].outputs)
        )
        for name in sorted(proto.signature_def)
        if name != INIT_SIGNATURE
    }


def init_ops_of(proto: pb.MetaGraphDef) -> tuple[str, ...]:
    """Return the ops that a loader runs after it has restored the variables."""
    ops: dict[str, None] = {}
    if INIT_SIGNATURE in proto.signature_def:
        for info in proto.signature_def[INIT_SIGNATURE].outputs.values():
            ops[parse_ref(info.name).node] = None
    for collection in _INIT_COLLECTIONS:
        if collection in proto.collection_def:
            for text in proto.collection_def[collection].node_list.value:
                ops[parse_ref(text).node] = None
    return tuple(ops)


def assets_of(proto: pb.MetaGraphDef, folder: Path, where: str) -> tuple[Asset, ...]:
    assets: dict[str, Asset] = {}
    for record in (*proto.asset_file_def, *_collected_assets(proto, where)):
        path = inside(folder, record.filename)
        tensor = record.tensor_info.name
        assets[tensor] = Asset(tensor, record.filename, path)
    return tuple(assets[t] for t in sorted(assets))


def slices_of(proto: pb.MetaGraphDef, where: str) -> dict[str, SavedValue]:
    """Return the slice of each variable node that is part of a partitioned variable."""
    slices: dict[str, SavedValue] = {}
    for name in _VARIABLE_COLLECTIONS:
        if name not in proto.collection_def:
            continue
        for record in proto.collection_def[name].bytes_list.value:
            variable = _parsed(pb.VariableDef, record, where)
            info = variable.save_slice_info_def
            if info.full_name and len(info.var_shape) == len(info.var_offset):
                extents = zip(info.var_offset, info.var_shape, strict=True)
                spec = " ".join(map(str, info.full_shape))
                spec += " " + ":".join(f"{start},{length}" for start, length in extents)
                node = parse_ref(variable.variable_name).node
                slices[node] = SavedValue(info.full_name, spec)
    return slices


def _specs(infos: object) -> dict[str, TensorSpec]:
    named: dict[str, pb.TensorInfo] = dict(infos)  # type: ignore[call-overload]
    return dict(spec for key, info in sorted(named.items()) for spec in _tensors(key, info))


def _tensors(key: str, info: pb.TensorInfo) -> Iterator[tuple[str, TensorSpec]]:
    """Yield the tensors of an argument: one, or several for sparse and composite tensors."""
    shape = shape_from_proto(info.tensor_shape)
    encoding = info.WhichOneof("encoding")
    if encoding == "name":
        yield key, TensorSpec(info.name, DType(info.dtype), shape)
    elif encoding == "coo_sparse":
        parts = info.coo_sparse
        rank = -1 if shape is None else len(shape)
        yield f"{key}/indices", TensorSpec(parts.indices_tensor_name, DType.INT64, (-1, rank))
        yield f"{key}/values", TensorSpec(parts.values_tensor_name, DType(info.dtype), (-1,))
        yield f"{key}/dense_shape", TensorSpec(parts.dense_shape_tensor_name, DType.INT64, (rank,))
    elif encoding == "composite_tensor":
        for index, part in enumerate(info.composite_tensor.components):
            yield from _tensors(f"{key}/{index}", part)


def _collected_assets(proto: pb.MetaGraphDef, where: str) -> Iterator[pb.AssetFileDef]:
    for name in _ASSET_COLLECTIONS:
        if name in proto.collection_def:
            for record in proto.collection_def[name].any_list.value:
                yield _parsed(pb.AssetFileDef, record.value, where)


def _parsed(message: type[M], data: bytes, where: str) -> M:
    try:
        return message.FromString(data)
    except DecodeError as error:
        text = f"a record that should be a {message.DESCRIPTOR.name} is none"
        raise CorruptFileError(text, "the file is damaged", where) from error


_OBJECT_GRAPH: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"


def keys_by_full_name(checkpoint: Checkpoint, graph: Graph) -> dict[str, SavedValue]:
    """Return the key of each variable node that the object graph identifies uniquely.

    Names of several variables or objects, and entries of another type, are ambiguous and skipped;
    such variables are only identified by the graph's restore ops.
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
    values: dict[str, SavedValue] = {}
    for node, name in variables:
        keys = saved.get(name, ())
        if shared[name] == 1 and len(keys) == 1:
            (key,) = keys
            # Variables with paths of assets have no names and are not saved.
            if key in checkpoint and checkpoint.entry(key).dtype is node.attr_dtype("dtype").base:
                values[node.name] = SavedValue(key)
    return values


_PART: Final = re.compile(r"(.+)/part_(\d{1,6})\Z")


def slices_by_name(checkpoint: Checkpoint, graph: Graph) -> dict[str, SavedValue]:
    """Return the slices of the tensor NAME for variables "NAME/part_0", "NAME/part_1", and so on.

    Parts that do not add up to the tensor along one axis are skipped.
    """
    parts: dict[str, dict[int, tuple[str, TensorShape]]] = {}
    for node in variables_of(graph):
        match = _PART.match(node.name)
        if match is not None and match[1] in checkpoint and node.name not in checkpoint:
            numbered = parts.setdefault(match[1], {})
            numbered[int(match[2])] = node.name, node.attr_shape("shape")
    sources: dict[str, SavedValue] = {}
    for name, numbered in parts.items():
        sources.update(_slices(name, numbered, checkpoint.entry(name).shape))
    return sources


def _slices(
    name: str, numbered: Mapping[int, tuple[str, TensorShape]], full: Sequence[int]
) -> dict[str, SavedValue]:
    if sorted(numbered) != list(range(len(numbered))):
        return {}
    names = [numbered[i][0] for i in range(len(numbered))]
    shapes = [shape for i in range(len(numbered)) if (shape := numbered[i][1]) is not None]
    axis = _axis(shapes, full) if len(shapes) == len(names) else None
    if axis is None:
        return {}
    slices: dict[str, SavedValue] = {}
    start = 0
    for node, shape in zip(names, shapes, strict=True):
        extents = [f"0,{size}" for size in full]
        extents[axis] = f"{start},{shape[axis]}"
        spec = " ".join(map(str, full))
        slices[node] = SavedValue(name, f"{spec} {':'.join(extents)}")
        start += shape[axis]
    return slices


def _axis(shapes: Sequence[tuple[int, ...]], full: Sequence[int]) -> int | None:
    """Return the axis along which the parts are concatenated, or None."""
    for axis, size in enumerate(full):
        rest = [(*full[:axis], *full[axis + 1 :])] * len(shapes)
        if [(*s[:axis], *s[axis + 1 :]) for s in shapes] != rest:
            continue
        if all(len(s) == len(full) for s in shapes) and sum(s[axis] for s in shapes) == size:
            return axis
    return None
