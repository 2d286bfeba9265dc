"""Element types: numbers, names, and NumPy equivalents."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats import dtypes
from mobileprep.formats.dtypes import DType, dtype_from_numpy, dtype_from_text
from mobileprep.formats.protos import graph_pb2 as pb

KNOWN = [d for d in DType if d is not DType.INVALID]
NUMERIC = [d for d in KNOWN if d.numpy is not None]
QUANTIZED = {DType.QINT8, DType.QUINT8, DType.QINT16, DType.QUINT16, DType.QINT32}
BITS = {"4": 4, "8": 8, "16": 16, "32": 32, "64": 64, "128": 128}


@pytest.mark.parametrize("dtype", KNOWN, ids=lambda d: d.label)
def test_every_name_is_parsed(dtype: DType) -> None:
    for member in (dtype, DType(dtype.value + 100)):
        assert dtype_from_text(member.short) is member
        assert dtype_from_text(member.label) is member
    assert DType(dtype.value + 100).label == f"{dtype.label}_REF"
    assert DType(dtype.value + 100).short == f"{dtype.short}_ref"


@pytest.mark.parametrize("number", range(33))
def test_numbers_match_protobuf(number: int) -> None:
    label = pb.DataType.Name(number)  # type: ignore[arg-type]
    assert DType(number).label == label
    if number:
        assert DType(number + 100).label == pb.DataType.Name(number + 100)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("float", DType.FLOAT),
        ("double", DType.DOUBLE),
        ("half", DType.HALF),
        ("float32", DType.FLOAT),
        ("int64", DType.INT64),
        ("quint8", DType.QUINT8),
        ("DT_BFLOAT16", DType.BFLOAT16),
        ("float32_ref", DType(101)),
    ],
)
def test_type_names_of_the_original_flags(text: str, dtype: DType) -> None:
    assert dtype_from_text(text) is dtype


@pytest.mark.parametrize("text", ["", "Float", "float33", "DT_", "float32 ", "INVALID"])
def test_unknown_type_names(text: str) -> None:
    assert dtype_from_text(text) is None


@pytest.mark.parametrize("dtype", [d for d in NUMERIC if d not in QUANTIZED], ids=lambda d: d.short)
def test_numpy_types_are_converted_in_either_byte_order(dtype: DType) -> None:
    assert dtype.numpy is not None
    assert dtype_from_numpy(dtype.numpy) is dtype
    if dtype.numpy.kind in "iufc":
        assert dtype_from_numpy(dtype.numpy.newbyteorder(">")) is dtype


def test_c_types_of_the_same_width_are_equal() -> None:
    for name in ("int_", "intc", "longlong", "uint", "uintc", "ulonglong"):
        kind = np.dtype(getattr(np, name))
        assert dtype_from_numpy(kind) is dtype_from_text(kind.name)


@pytest.mark.parametrize("kind", ["O", "S3", "U2"])
def test_string_types_of_numpy(kind: str) -> None:
    assert dtype_from_numpy(np.dtype(kind)) is DType.STRING


@pytest.mark.parametrize("kind", ["M8[s]", "m8[s]", "V4", "g", [("a", "i4")]])
def test_other_numpy_types_have_no_equivalent(kind: object) -> None:
    assert dtype_from_numpy(np.dtype(kind)) is None  # type: ignore[call-overload]


@pytest.mark.parametrize("dtype", NUMERIC, ids=lambda d: d.short)
def test_item_sizes_in_tensor_content(dtype: DType) -> None:
    digits = "".join(c if c.isdigit() else " " for c in dtype.short.split("_")[0]).split()
    bits = BITS[digits[0]] if digits else 8  # bool
    # 4-bit types take a whole byte in tensor content.
    assert dtype.itemsize == max(bits // 8, 1)
    assert DType(dtype.value + 100).itemsize == dtype.itemsize
    assert dtype.numpy is not None
    assert dtype.numpy.byteorder in "<|="


@pytest.mark.parametrize("dtype", [DType.STRING, DType.RESOURCE, DType.VARIANT, DType.INVALID])
def test_types_without_a_fixed_size(dtype: DType) -> None:
    assert (dtype.numpy, dtype.itemsize) == (None, 0)


def test_quantized_types() -> None:
    assert {d for d in KNOWN if d.is_quantized} == QUANTIZED
    assert DType(DType.QUINT8 + 100).is_quantized
    assert {d.short for d in QUANTIZED} == {"qint8", "quint8", "qint16", "quint16", "qint32"}


def test_floating_types() -> None:
    for dtype in NUMERIC:
        assert dtype.numpy is not None
        floats = dtype.numpy.kind == "f" or dtype.short.startswith(("bfloat", "float8"))
        assert dtype.is_floating == floats
    assert DType.BFLOAT16.numpy == np.dtype(ml_dtypes.bfloat16)


def test_reference_types() -> None:
    reference = DType(101)
    assert reference.is_ref
    assert reference.base is DType.FLOAT
    assert reference.numpy == np.dtype("<f4")
    assert not DType.FLOAT.is_ref
    assert DType.FLOAT.base is DType.FLOAT


@pytest.mark.parametrize("number", [33, 77, 99, 100, 177, 250, -1, 2**31 - 1, -(2**31)])
def test_unknown_numbers_are_preserved(number: int) -> None:
    dtype = DType(number)
    assert int(dtype) == number
    assert DType(number) is dtype
    assert (dtype.numpy, dtype.is_quantized, dtype.is_floating) == (None, False, False)
    assert dtype.label.startswith("DT_")
    assert dtype.short
    assert dtype not in list(DType)


def test_non_numeric_value_is_an_error() -> None:
    with pytest.raises(ValueError, match="float"):
        DType("float")


def test_narrow_types_have_sizes_without_ml_dtypes(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    dtypes._narrow.cache_clear()
    try:
        assert (DType.BFLOAT16.itemsize, DType.INT4.itemsize, DType.FLOAT.itemsize) == (2, 1, 4)
        assert DType.FLOAT.numpy == np.dtype("<f4")
        with pytest.raises(UnsupportedError, match="bfloat16 values need the package") as error:
            _ = DType.BFLOAT16.numpy
        assert "mobileprep[narrow]" in error.value.hint
    finally:
        dtypes._narrow.cache_clear()
