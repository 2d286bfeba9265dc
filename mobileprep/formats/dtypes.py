"""TensorFlow's element types: their numbers, names, sizes and numpy counterparts."""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import Any

import numpy as np

from mobileprep.errors import UnsupportedError

_REF_OFFSET = 100


class DType(enum.IntEnum):
    """An element type, numbered as on the wire. Reference types are ``number + 100``.

    Numbers that this table does not know become nameless members, so that a graph of a
    newer TensorFlow passes through unharmed; asking such a type for its numpy type fails.
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
        """The type referred to, or the type itself."""
        return DType(self.value - _REF_OFFSET) if self.is_ref else self

    @property
    def label(self) -> str:
        """The name as protobuf text has it: ``DT_FLOAT``."""
        return f"DT_{self.name}"

    @property
    def short(self) -> str:
        """The name as Python users of TensorFlow know it: ``float32``."""
        short = _SHORT.get(self.base, self.base.name.lower())
        return f"{short}_ref" if self.is_ref else short

    @property
    def numpy(self) -> np.dtype[Any] | None:
        """The little-endian numpy type that holds one element, or None (string, resource).

        Raises:
            UnsupportedError: the type is not numpy's own, and ml_dtypes is not installed.
        """
        base = self.base
        kind = _NUMPY.get(base)
        return _narrow(base) if kind is None and base in _NARROW else kind

    @property
    def itemsize(self) -> int:
        """Bytes an element takes in tensor content; 0 where elements have no fixed size."""
        base = self.base
        if base in _NARROW:
            return 2 if base is DType.BFLOAT16 else 1
        kind = _NUMPY.get(base)
        return kind.itemsize if kind is not None else 0

    @property
    def is_quantized(self) -> bool:
        """Whether this is one of TensorFlow's q-types, which numpy holds as plain integers."""
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
# Types of ml_dtypes, an extra: it has no wheels for some systems that numpy has wheels for.
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
    """The type named ``float``, ``float32`` or ``DT_FLOAT``, or None.

    The short spellings without a width are those of the original tools' flags.
    """
    return _by_text().get(text)


def dtype_from_numpy(kind: np.dtype[Any]) -> DType | None:
    """The plain type that an array of that numpy type holds, or None; text counts as string."""
    if kind.kind in "OSU":
        return DType.STRING
    if kind.type.__module__ == "ml_dtypes":
        return _from_ml_dtypes().get(kind.newbyteorder("="))
    return _from_numpy().get(kind.newbyteorder("<") if kind.kind in "iufc" else kind)


def narrow_max(kind: np.dtype[Any]) -> Any:  # noqa: ANN401 - a numpy scalar
    """The largest finite number of a floating type of numpy or ml_dtypes."""
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
