"""Arithmetic, over types and repeated sizes."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from tests.litert.graphs import numpy_type
from tests.litert.one_op import check, integers, numbers

SHAPES = [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((2, 1, 4), (3, 1)), ((1, 2, 1, 3, 4), (3, 1))]
BINARY = {
    "Add": "ADD",
    "AddV2": "ADD",
    "Sub": "SUB",
    "Mul": "MUL",
    "Minimum": "MINIMUM",
    "Maximum": "MAXIMUM",
    "SquaredDifference": "SQUARED_DIFFERENCE",
    "FloorMod": "FLOOR_MOD",
    "FloorDiv": "FLOOR_DIV",
}
LONG = ["Add", "Sub", "Mul", "Minimum", "Maximum", "FloorMod"]


@pytest.mark.parametrize("kind", sorted(BINARY))
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_two_tensors(
    kind: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str
) -> None:
    if dtype == "float32":
        left, right = numbers(*shapes[0]), numbers(*shapes[1], seed=5)
    else:
        left, right = integers(*shapes[0]), integers(*shapes[1], low=1)
    is_floor = kind == "FloorDiv" and dtype == "float32"
    codes = [code for code in check(kind, [left, right]) if code != "RESHAPE"]
    assert codes == (["DIV", "FLOOR"] if is_floor else [BINARY[kind]])


@pytest.mark.parametrize("kind", LONG)
def test_two_tensors_of_int64(kind: str) -> None:
    left, right = integers(2, 3, dtype=np.int64), integers(3, low=1, dtype=np.int64)
    assert check(kind, [left, right]) == [BINARY[kind]]


def test_a_rounded_quotient_of_zero() -> None:
    """FLOOR_DIV ends the run."""
    assert check("FloorDiv", [numbers(2, 3), np.zeros(3, np.float32)]) == ["DIV", "FLOOR"]


def test_division() -> None:
    x, y = numbers(2, 3), numbers(3, seed=5)
    assert check("RealDiv", [x, y]) == ["DIV"]
    assert check("Div", [x, y]) == ["DIV"]
    assert check("Div", [integers(9), integers(9, low=1)]) == ["DIV"]


def test_a_truncated_quotient_is_that_of_whole_numbers() -> None:
    """DIV of floats cuts nothing off."""
    assert check("TruncateDiv", [integers(9), integers(9, low=1)]) == ["DIV"]
    with pytest.raises(UnsupportedError, match="TruncateDiv"):
        check("TruncateDiv", [numbers(2, 3), numbers(3, seed=5)])


@pytest.mark.parametrize("kind", ["Less", "GreaterEqual", "Equal", "NotEqual"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_small_integers_are_compared_as_larger_ones(kind: str, dtype: type) -> None:
    """The runtime ends the app where integers of 8 bits have no scale."""
    x, y = integers(3, 4, low=0, dtype=dtype), integers(4, low=0, dtype=dtype)
    code = {"Less": "LESS", "GreaterEqual": "GREATER_EQUAL", "Equal": "EQUAL"}.get(
        kind, "NOT_EQUAL"
    )
    assert check(kind, [x, y]) == ["CAST", "CAST", code]
    assert check(kind, [x, y], constant=[1]) == ["CAST", code]


def test_an_angle_is_computed_of_tensors_of_one_shape() -> None:
    """ATAN2 repeats no sizes."""
    x, y = numbers(2, 3), numbers(3, seed=5)
    assert check("Atan2", [x, x + 1]) == ["ATAN2"]
    assert check("Atan2", [x, y]) == ["BROADCAST_TO", "ATAN2"]
    assert check("Atan2", [numbers(2, 1), y]) == ["BROADCAST_TO", "BROADCAST_TO", "ATAN2"]
    with pytest.raises(UnsupportedError, match="sizes"):
        check("Atan2", [x, y], open_sizes=1)


def test_powers() -> None:
    assert check("Pow", [abs(numbers(2, 3)), numbers(3, seed=5)], tolerance=1e-5) == ["POW"]
    assert check("Pow", [integers(9), integers(9, low=0, high=4)]) == ["POW"]


@pytest.mark.parametrize(
    "kind", ["Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
def test_comparisons(kind: str, dtype: type) -> None:
    left, right = integers(4, 5, low=0, high=3), integers(5, low=0, high=3)
    check(kind, [left.astype(dtype), right.astype(dtype)])


def test_logic() -> None:
    x, y = integers(3, 4) > 0, integers(4) > 2
    assert check("LogicalAnd", [x, y]) == ["LOGICAL_AND"]
    assert check("LogicalOr", [x, y]) == ["LOGICAL_OR"]
    assert check("LogicalNot", [x]) == ["LOGICAL_NOT"]


@pytest.mark.parametrize(
    "kind",
    ["Abs", "Neg", "Exp", "Square", "Sin", "Cos", "Floor", "Ceil", "Round", "Sign", "Rint"],
)
def test_one_tensor(kind: str) -> None:
    check(kind, [numbers(2, 3, 5) * 3])


@pytest.mark.parametrize("kind", ["Log", "Sqrt", "Rsqrt", "Reciprocal", "Inv"])
def test_one_tensor_above_0(kind: str) -> None:
    check(kind, [abs(numbers(2, 3, 5)) + 0.1])


@pytest.mark.parametrize("dtype", [np.int32])
@pytest.mark.parametrize("kind", ["Abs", "Neg", "Sign"])
def test_one_tensor_of_integers(kind: str, dtype: type) -> None:
    check(kind, [integers(12, dtype=dtype)])


def test_rounding_is_to_even() -> None:
    check("Round", [np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5], np.float32)])


def test_sums_of_many() -> None:
    parts = [numbers(2, 3, seed=i) for i in range(4)]
    assert check("AddN", parts) == ["ADD_N"]
    assert check("AddN", parts[:2]) == ["ADD"]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_bias(layout: str) -> None:
    channels = 4 if layout == "NHWC" else 2
    values = [numbers(3, 2, 3, 4), numbers(channels, seed=5)]
    assert check("BiasAdd", values, constant=[1], data_format=layout) == ["ADD"]


def test_division_without_nan() -> None:
    x, y = numbers(2, 4), np.array([0, 1, -2, 0], np.float32)
    check("DivNoNan", [x, y])


@pytest.mark.parametrize(("kind", "index"), [("DivNoNan", 1), ("MulNoNan", 1), ("Xdivy", 0)])
def test_zero_wins_over_what_has_no_value(kind: str, index: int) -> None:
    wild = np.array([[np.nan, np.inf, 0, 2]], np.float32)
    zeros = np.array([[0, 0, 0, 0], [1, -2, 3, 0]], np.float32)
    inputs = (wild, zeros) if index else (zeros, wild)
    check(kind, inputs)


@pytest.mark.parametrize("kind", ["Xlogy", "Xlog1py"])
def test_zero_wins_over_a_logarithm_of_nothing(kind: str) -> None:
    wild = np.array([[np.nan, np.inf, 0, -1, -5, 0.5]], np.float32)
    check(kind, [np.zeros((2, 6), np.float32), wild])
    x = np.array([[2], [-0.5]], np.float32)
    check(kind, [x, abs(numbers(2, 3)) + np.float32(0.1)], tolerance=1e-6)


def test_exponents_and_logarithms_around_1() -> None:
    # Their difference to 1 has the precision of float32 around 1.
    check("Expm1", [numbers(2, 3)], tolerance=1e-6)
    check("Log1p", [abs(numbers(2, 3))], tolerance=1e-6)


@pytest.mark.parametrize("wanted", [DType.INT32, DType.INT64, DType.BOOL, DType.UINT8, DType.FLOAT])
@pytest.mark.parametrize("given", [np.float32, np.int32, np.int64, np.uint8, np.bool_])
def test_casts(wanted: DType, given: type) -> None:
    x = integers(12, low=0, high=9).astype(given)
    check("Cast", [x], SrcT=numpy_type(x), DstT=wanted)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, -1])
def test_cumulative_sums(exclusive: bool, reverse: bool, axis: int) -> None:
    values = [numbers(3, 4, 2), np.array(axis, np.int32)]
    found = check("Cumsum", values, constant=[1], exclusive=exclusive, reverse=reverse)
    assert found == ["CUMSUM"]


def test_types_that_no_kernel_takes_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="not for int32"):
        check("Sqrt", [integers(3)])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_squares_of_integers(dtype: type) -> None:
    assert check("Square", [integers(3, 4, dtype=dtype)]) == ["MUL"]


def test_signs_of_int64() -> None:
    check("Sign", [np.array([-(2**40), 0, 3, 2**50])])


def test_the_same_bytes_as_another_type() -> None:
    check("Bitcast", [numbers(3, 4)], T=DType.FLOAT, type=DType.UINT8)
    check("Bitcast", [integers(3, 4, dtype=np.int8)], T=DType.INT8, type=DType.INT32)
