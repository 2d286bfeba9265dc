"""The elements that a TensorProto lists one by one, in the field that its type has for them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.errors import CorruptFileError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import FLOAT_FIELD, Payload

# Which TensorProto field holds the elements of a type that does not come as raw content.
VALUE_FIELD: Final[dict[DType, str]] = {
    DType.FLOAT: "float_val",
    DType.DOUBLE: "double_val",
    DType.INT32: "int_val",
    DType.UINT8: "int_val",
    DType.INT16: "int_val",
    DType.INT8: "int_val",
    DType.UINT16: "int_val",
    DType.QINT8: "int_val",
    DType.QUINT8: "int_val",
    DType.QINT32: "int_val",
    DType.QINT16: "int_val",
    DType.QUINT16: "int_val",
    DType.INT4: "int_val",
    DType.UINT4: "int_val",
    DType.STRING: "string_val",
    DType.COMPLEX64: "scomplex_val",
    DType.INT64: "int64_val",
    DType.BOOL: "bool_val",
    DType.COMPLEX128: "dcomplex_val",
    DType.HALF: "half_val",
    DType.BFLOAT16: "half_val",
    DType.UINT32: "uint32_val",
    DType.UINT64: "uint64_val",
    DType.FLOAT8_E5M2: "float8_val",
    DType.FLOAT8_E4M3FN: "float8_val",
    DType.FLOAT8_E4M3FNUZ: "float8_val",
    DType.FLOAT8_E4M3B11FNUZ: "float8_val",
    DType.FLOAT8_E5M2FNUZ: "float8_val",
}


def listed_values(proto: pb.TensorProto, dtype: DType) -> NDArray[Any] | None:
    """The elements listed for ``dtype``, 1-D, strings as objects; None where none are."""
    field = VALUE_FIELD.get(dtype)
    listed: Any = getattr(proto, field) if field else ()
    if not len(listed):
        return None
    kind = dtype.numpy
    if kind is None:
        out = np.empty(len(listed), dtype=object)
        out[:] = list(listed)
        return out
    if field == "float8_val":
        return np.frombuffer(listed, dtype=kind)
    if field == "half_val":
        return np.array(listed, dtype=np.int64).astype(np.uint16).view(kind)
    if field in ("scomplex_val", "dcomplex_val"):
        part = np.dtype("<f4") if field == "scomplex_val" else np.dtype("<f8")
        return np.array(listed[: len(listed) // 2 * 2], dtype=part).view(kind)
    if field == "int_val":
        # Through int64: numpy refuses numbers that the narrow type cannot hold, TensorFlow cuts.
        return np.array(listed, dtype=np.int64).astype(kind)
    return np.array(listed, dtype=kind)


def packed_values(payload: Payload, where: str) -> NDArray[Any]:
    """The elements of a packed ``float_val`` or ``double_val`` field, as a view on its bytes.

    Raises:
        CorruptFileError: the bytes are no whole number of elements.
    """
    kind = np.dtype("<f4") if payload.field == FLOAT_FIELD else np.dtype("<f8")
    if len(payload.view) % kind.itemsize:
        message = f"{len(payload.view)} bytes of packed values are no whole number of elements"
        raise CorruptFileError(message, "the file is damaged", where)
    return np.frombuffer(payload.view, dtype=kind)
