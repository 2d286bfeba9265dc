"""TensorProto to Tensor and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from mobileprep.errors import CorruptFileError, InvalidGraphError
from mobileprep.formats.dtypes import VALUE_FIELD, DType, listed_values, packed_values
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import (
    CONTENT_FIELD,
    DOUBLE_FIELD,
    FLOAT_FIELD,
    LARGE,
    Payload,
    delimited,
    payload_at,
)
from mobileprep.ir.tensor import Array, Tensor, check_shape

_PACKED_FIELD: Final = {DType.FLOAT: FLOAT_FIELD, DType.DOUBLE: DOUBLE_FIELD}


def tensor_from_proto(proto: pb.TensorProto, payloads: list[Payload], where: str) -> Tensor:
    """Read a TensorProto, its large content possibly among ``payloads``.

    Raises:
        CorruptFileError: the content's length does not fit type and shape.
        InvalidGraphError: an impossible shape, or references as elements.
    """
    dtype = DType(proto.dtype)
    if dtype is not dtype.base:
        message = f"a tensor's elements cannot be of the type {dtype.name}"
        raise InvalidGraphError(message, "export the model again", where)
    shape = check_shape([d.size for d in proto.tensor_shape.dim], where)
    content: bytes | memoryview | None = proto.tensor_content or None
    values: Array | None = None
    payload = payload_at(payloads, proto.payload, where) if proto.payload else None
    if dtype.numpy is None and dtype is not DType.STRING:
        return Tensor(dtype, shape, opaque=_opaque(proto, payload))
    if payload is not None and payload.field == CONTENT_FIELD:
        content = payload.view
    elif payload is not None and payload.field == _PACKED_FIELD.get(dtype):
        # Elements in the field of another type do not count: values stay those of the type's own.
        values = packed_values(payload, where)
    if values is None and content is None:
        listed = listed_values(proto, dtype)
        values = np.empty(0, dtype=dtype.numpy or object) if listed is None else listed
    tensor = Tensor(dtype, shape, content=content, values=values)
    _check_length(tensor, where)
    if payload is not None and payload.sha256 and payload.view is content:
        tensor.lying_at(payload.view, payload.sha256)
    return tensor


def _opaque(proto: pb.TensorProto, payload: Payload | None) -> bytes:
    """A whole TensorProto, with its payload back in its place."""
    if payload is None:
        return proto.SerializeToString(deterministic=True)
    whole = pb.TensorProto()
    whole.CopyFrom(proto)
    whole.ClearField("payload")
    whole.MergeFromString(delimited(payload.field, bytes(payload.view)))
    return whole.SerializeToString(deterministic=True)


def tensor_to_proto(tensor: Tensor, proto: pb.TensorProto, *, with_content: bool = True) -> None:
    """Fill an empty TensorProto.

    Args:
        tensor: what to write.
        proto: where to; it must be empty.
        with_content: False leaves raw content out, for a caller that writes it by itself.
    """
    if tensor.opaque:
        proto.MergeFromString(tensor.opaque)
        return
    proto.dtype = tensor.dtype.value  # type: ignore[assignment]
    proto.tensor_shape.SetInParent()
    for size in tensor.shape:
        proto.tensor_shape.dim.add().size = size
    if is_written_raw(tensor):
        if with_content:
            proto.tensor_content = bytes(tensor.raw())
        return
    if tensor.content is not None:
        proto.tensor_content = bytes(tensor.content)
        return
    values = tensor.values if tensor.values is not None else tensor.array().ravel()
    _set_values(proto, tensor.dtype, values)


def is_written_raw(tensor: Tensor) -> bool:
    """Whether a tensor's elements are written as raw content rather than in a typed field.

    Leading values stay leading values: spread out, a constant filled with one number would
    grow by its size.
    """
    if tensor.dtype.numpy is None:
        return False
    if tensor.content is not None:
        return True
    if tensor.values is None:
        return tensor.size > 1
    # Converting millions of listed elements one by one is what raw content saves.
    return len(tensor.values) == tensor.size and tensor.nbytes >= LARGE


def is_large(tensor: Tensor) -> bool:
    """Whether a tensor's content is worth writing from where it lies."""
    if tensor.content is not None and len(tensor.content) < LARGE:
        return False
    return is_written_raw(tensor) and tensor.nbytes >= LARGE


def _set_values(proto: pb.TensorProto, dtype: DType, values: Array) -> None:
    field = VALUE_FIELD[dtype]
    listed: Sequence[Any]
    if field == "float8_val":
        proto.float8_val = values.tobytes()
        return
    if field == "half_val":
        listed = np.ascontiguousarray(values).view(np.uint16).tolist()
    elif field in ("scomplex_val", "dcomplex_val"):
        part = np.dtype("<f4") if field == "scomplex_val" else np.dtype("<f8")
        listed = np.ascontiguousarray(values).view(part).tolist()
    elif field == "int_val":
        listed = values.astype(np.int64).tolist()
    else:
        listed = values.tolist()
    getattr(proto, field).extend(listed)


def _check_length(tensor: Tensor, where: str) -> None:
    if tensor.content is None or tensor.dtype is DType.STRING:
        return
    expected = tensor.size * tensor.dtype.itemsize
    if len(tensor.content) != expected:
        found = len(tensor.content)
        message = (
            f"a {tensor.dtype.short} tensor of shape {list(tensor.shape)} takes {expected} bytes, "
            f"and {found} are there"
        )
        raise CorruptFileError(message, "the file is damaged", where)
