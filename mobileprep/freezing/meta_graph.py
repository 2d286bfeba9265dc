"""What a MetaGraphDef says beside its graph: signatures, init ops, assets, slices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from mobileprep.core.files import inside
from mobileprep.errors import CorruptFileError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import saved_model_pb2 as pb
from mobileprep.freezing.model import Asset, Signature, TensorSpec
from mobileprep.freezing.restore import SavedValue
from mobileprep.freezing.session_bundle import BUNDLE_COLLECTION, bundle_signatures
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.serde_attrs import shape_from_proto

# The signature under which TensorFlow 2 names its init op, and TensorFlow 1's collections.
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
    """The signatures by name, sorted; an argument of several tensors is named part by part.

    Those of a session bundle, the export format before SavedModel, come before none.
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
    """The names of the ops that a loader runs once the variables have their values."""
    found: dict[str, None] = {}
    if INIT_SIGNATURE in proto.signature_def:
        for info in proto.signature_def[INIT_SIGNATURE].outputs.values():
            found[parse_ref(info.name).node] = None
    for collection in _INIT_COLLECTIONS:
        if collection in proto.collection_def:
            for text in proto.collection_def[collection].node_list.value:
                found[parse_ref(text).node] = None
    return tuple(found)


def assets_of(proto: pb.MetaGraphDef, folder: Path, where: str) -> tuple[Asset, ...]:
    """The files that the graph reads.

    Args:
        proto: the MetaGraph.
        folder: where its assets lie.
        where: for messages.

    Raises:
        CorruptFileError: a record is damaged.
        ArtifactError: a name leads out of the folder.
    """
    found: dict[str, Asset] = {}
    for record in (*proto.asset_file_def, *_collected_assets(proto, where)):
        path = inside(folder, record.filename)
        tensor = record.tensor_info.name
        found[tensor] = Asset(tensor, record.filename, path)
    return tuple(found[t] for t in sorted(found))


def slices_of(proto: pb.MetaGraphDef, where: str) -> dict[str, SavedValue]:
    """For each variable node that is a slice of a partitioned variable, which slice it is.

    Raises:
        CorruptFileError: a record of a variable is damaged.
    """
    found: dict[str, SavedValue] = {}
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
                found[node] = SavedValue(info.full_name, spec)
    return found


def _specs(infos: object) -> dict[str, TensorSpec]:
    named: dict[str, pb.TensorInfo] = dict(infos)  # type: ignore[call-overload]
    return dict(spec for key, info in sorted(named.items()) for spec in _tensors(key, info))


def _tensors(key: str, info: pb.TensorInfo) -> Iterator[tuple[str, TensorSpec]]:
    """The tensors of an argument: one, those of a sparse tensor, or of another that has parts."""
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
