"""TensorFlow's dtypes, and the values in the typed fields of a TensorProto."""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import FLOAT_FIELD, Payload

_REF_OFFSET = 100


class DType(enum.IntEnum):
    """A dtype with its protobuf number. Reference types are ``number + 100``.

    Unknown numbers become unnamed members, so that graphs of newer TensorFlow releases are
    preserved; such types have no numpy type.
    """

    INVALID = 0
    FLOAT = 1
    DOUBLE = 2
    INT32 = 3
    UINT8 = 4
    INT16 = 5
    INT8 = 6
    STRING = 7
    COMPLEX64 = 8
    INT64 = 9
    BOOL = 10
    QINT8 = 11
    QUINT8 = 12
    QINT32 = 13
    BFLOAT16 = 14
    QINT16 = 15
    QUINT16 = 16
    UINT16 = 17
    COMPLEX128 = 18
    HALF = 19
    RESOURCE = 20
    VARIANT = 21
    UINT32 = 22
    UINT64 = 23
    FLOAT8_E5M2 = 24
    FLOAT8_E4M3FN = 25
    FLOAT8_E4M3FNUZ = 26
    FLOAT8_E4M3B11FNUZ = 27
    FLOAT8_E5M2FNUZ = 28
    INT4 = 29
    UINT4 = 30
    INT2 = 31
    UINT2 = 32

    @classmethod
    def _missing_(cls, value: object) -> DType | None:
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        base = cls._value2member_map_.get(value - _REF_OFFSET)
        member._name_ = f"{base.name}_REF" if isinstance(base, DType) else f"UNKNOWN_{value}"
        member._value_ = value
        cls._value2member_map_[value] = member
        return member

    @property
    def is_ref(self) -> bool:
        """Whether this is the type of a reference to a mutable tensor."""
        return self.value > _REF_OFFSET

    @property
    def base(self) -> DType:
        """The referenced type, or the type itself."""
        return DType(self.value - _REF_OFFSET) if self.is_ref else self

    @property
    def label(self) -> str:
        """The name in protobuf text: ``DT_FLOAT``."""
        return f"DT_{self.name}"

    @property
    def short(self) -> str:
        """The name in TensorFlow's Python API: ``float32``."""
        short = _SHORT.get(self.base, self.base.name.lower())
        return f"{short}_ref" if self.is_ref else short

    @property
    def numpy(self) -> np.dtype[Any] | None:
        """The little-endian numpy type of an element, or None (string, resource).

        Raises:
            UnsupportedError: if the type is not part of numpy, and ml_dtypes is not installed.
        """
        base = self.base
        kind = _NUMPY.get(base)
        return _narrow(base) if kind is None and base in _NARROW else kind

    @property
    def itemsize(self) -> int:
        """Bytes of an element in tensor content; 0 if elements have no fixed size."""
        base = self.base
        if base in _NARROW:
            return 2 if base is DType.BFLOAT16 else 1
        kind = _NUMPY.get(base)
        return kind.itemsize if kind is not None else 0

    @property
    def is_quantized(self) -> bool:
        """Whether this is a quantized type, which numpy represents as plain integers."""
        return self.base in _QUANTIZED

    @property
    def is_floating(self) -> bool:
        """Whether this is a real floating-point type."""
        return self.base in _FLOATING


_NUMPY: dict[int, np.dtype[Any]] = {
    DType.FLOAT: np.dtype("<f4"),
    DType.DOUBLE: np.dtype("<f8"),
    DType.INT32: np.dtype("<i4"),
    DType.UINT8: np.dtype("u1"),
    DType.INT16: np.dtype("<i2"),
    DType.INT8: np.dtype("i1"),
    DType.COMPLEX64: np.dtype("<c8"),
    DType.INT64: np.dtype("<i8"),
    DType.BOOL: np.dtype("?"),
    DType.QINT8: np.dtype("i1"),
    DType.QUINT8: np.dtype("u1"),
    DType.QINT32: np.dtype("<i4"),
    DType.QINT16: np.dtype("<i2"),
    DType.QUINT16: np.dtype("<u2"),
    DType.UINT16: np.dtype("<u2"),
    DType.COMPLEX128: np.dtype("<c16"),
    DType.HALF: np.dtype("<f2"),
    DType.UINT32: np.dtype("<u4"),
    DType.UINT64: np.dtype("<u8"),
}
# Types of ml_dtypes, which is an extra because it has no wheels for some of numpy's platforms.
_NARROW = frozenset(
    {
        DType.BFLOAT16,
        DType.FLOAT8_E5M2,
        DType.FLOAT8_E4M3FN,
        DType.FLOAT8_E4M3FNUZ,
        DType.FLOAT8_E4M3B11FNUZ,
        DType.FLOAT8_E5M2FNUZ,
        DType.INT4,
        DType.UINT4,
    }
)
_QUANTIZED = frozenset({DType.QINT8, DType.QUINT8, DType.QINT16, DType.QUINT16, DType.QINT32})
_FLOATING = frozenset(
    {
        DType.FLOAT,
        DType.DOUBLE,
        DType.HALF,
        DType.BFLOAT16,
        DType.FLOAT8_E5M2,
        DType.FLOAT8_E4M3FN,
        DType.FLOAT8_E4M3FNUZ,
        DType.FLOAT8_E4M3B11FNUZ,
        DType.FLOAT8_E5M2FNUZ,
    }
)
_SHORT = {DType.FLOAT: "float32", DType.DOUBLE: "float64", DType.HALF: "float16"}


@lru_cache(maxsize=1)
def _by_text() -> dict[str, DType]:
    names: dict[str, DType] = {"float": DType.FLOAT, "double": DType.DOUBLE, "half": DType.HALF}
    for plain in list(DType):
        for member in (plain, DType(plain.value + _REF_OFFSET)):
            names[member.short] = names[member.label] = member
    return names


def dtype_from_text(text: str) -> DType | None:
    """Return the type named ``float``, ``float32``, or ``DT_FLOAT``, or None.

    The names without a width are those in the flags of the original tools.
    """
    return _by_text().get(text)


def dtype_from_numpy(kind: np.dtype[Any]) -> DType | None:
    """Return the dtype of arrays with this numpy type, or None; text types are strings."""
    if kind.kind in "OSU":
        return DType.STRING
    if kind.type.__module__ == "ml_dtypes":
        return _from_ml_dtypes().get(kind.newbyteorder("="))
    return _from_numpy().get(kind.newbyteorder("<") if kind.kind in "iufc" else kind)


def narrow_max(kind: np.dtype[Any]) -> Any:  # noqa: ANN401 - a numpy scalar
    """Return the largest finite number of a floating-point type of numpy or ml_dtypes."""
    if kind.type.__module__ != "ml_dtypes":
        return np.finfo(kind).max
    import ml_dtypes

    return ml_dtypes.finfo(kind).max  # type: ignore[no-untyped-call]


@lru_cache(maxsize=16)
def _narrow(dtype: DType) -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError:
        message = f"{dtype.short} values need the package ml_dtypes"
        raise UnsupportedError(message, "run `pip install 'mobileprep[narrow]'`") from None
    kind: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype.short))
    return kind


@lru_cache(maxsize=1)
def _from_numpy() -> dict[np.dtype[Any], DType]:
    return {kind: DType(number) for number, kind in _NUMPY.items() if number not in _QUANTIZED}


@lru_cache(maxsize=1)
def _from_ml_dtypes() -> dict[np.dtype[Any], DType]:
    return {_narrow(dtype): dtype for dtype in _NARROW}


# TensorProto fields with the elements of tensors that are not stored as raw content.
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
    """Return the listed elements, 1-D, with strings as objects; None if there are none."""
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
        # Through int64: TensorFlow truncates numbers that the type cannot represent; numpy raises.
        return np.array(listed, dtype=np.int64).astype(kind)
    return np.array(listed, dtype=kind)


def packed_values(payload: Payload, where: str) -> NDArray[Any]:
    """Return the elements of a packed ``float_val`` or ``double_val`` field as a view."""
    kind = np.dtype("<f4") if payload.field == FLOAT_FIELD else np.dtype("<f8")
    if len(payload.view) % kind.itemsize:
        message = f"{len(payload.view)} bytes of packed values are not a whole number of elements"
        raise CorruptFileError(message, "the file is damaged", where)
    return np.frombuffer(payload.view, dtype=kind)
