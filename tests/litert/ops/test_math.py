"""Arithmetic over types and broadcasts."""

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
def test_binary_ops(kind: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str) -> None:
    if dtype == "float32":
        a, b = numbers(*shapes[0]), numbers(*shapes[1], seed=5)
    else:
        a, b = integers(*shapes[0]), integers(*shapes[1], low=1)
    is_floor = kind == "FloorDiv" and dtype == "float32"
    codes = [code for code in check(kind, [a, b]) if code != "RESHAPE"]
    assert codes == (["DIV", "FLOOR"] if is_floor else [BINARY[kind]])


@pytest.mark.parametrize("kind", LONG)
def test_binary_ops_of_int64(kind: str) -> None:
    a, b = integers(2, 3, dtype=np.int64), integers(3, low=1, dtype=np.int64)
    assert check(kind, [a, b]) == [BINARY[kind]]


def test_floor_div_by_zero() -> None:
    """FLOOR_DIV fails at run time."""
    assert check("FloorDiv", [numbers(2, 3), np.zeros(3, np.float32)]) == ["DIV", "FLOOR"]


def test_division() -> None:
    x, y = numbers(2, 3), numbers(3, seed=5)
    assert check("RealDiv", [x, y]) == ["DIV"]
    assert check("Div", [x, y]) == ["DIV"]
    assert check("Div", [integers(9), integers(9, low=1)]) == ["DIV"]


def test_truncate_div_of_integers() -> None:
    """DIV of floats does not truncate."""
    assert check("TruncateDiv", [integers(9), integers(9, low=1)]) == ["DIV"]
    with pytest.raises(UnsupportedError, match="TruncateDiv"):
        check("TruncateDiv", [numbers(2, 3), numbers(3, seed=5)])


@pytest.mark.parametrize("kind", ["Less", "GreaterEqual", "Equal", "NotEqual"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_small_integers_are_cast_before_comparisons(kind: str, dtype: type) -> None:
    """The runtime aborts on 8-bit integers without a scale."""
    x, y = integers(3, 4, low=0, dtype=dtype), integers(4, low=0, dtype=dtype)
    code = {"Less": "LESS", "GreaterEqual": "GREATER_EQUAL", "Equal": "EQUAL"}.get(
        kind, "NOT_EQUAL"
    )
    assert check(kind, [x, y]) == ["CAST", "CAST", code]
    assert check(kind, [x, y], constant=[1]) == ["CAST", code]


def test_atan2_inputs_are_broadcast() -> None:
    """ATAN2 does not broadcast."""
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
    a, b = integers(4, 5, low=0, high=3), integers(5, low=0, high=3)
    check(kind, [a.astype(dtype), b.astype(dtype)])


def test_logic() -> None:
    x, y = integers(3, 4) > 0, integers(4) > 2
    assert check("LogicalAnd", [x, y]) == ["LOGICAL_AND"]
    assert check("LogicalOr", [x, y]) == ["LOGICAL_OR"]
    assert check("LogicalNot", [x]) == ["LOGICAL_NOT"]


@pytest.mark.parametrize(
    "kind",
    ["Abs", "Neg", "Exp", "Square", "Sin", "Cos", "Floor", "Ceil", "Round", "Sign", "Rint"],
)
def test_unary_ops(kind: str) -> None:
    check(kind, [numbers(2, 3, 5) * 3])


@pytest.mark.parametrize("kind", ["Log", "Sqrt", "Rsqrt", "Reciprocal", "Inv"])
def test_unary_ops_of_positive_numbers(kind: str) -> None:
    check(kind, [abs(numbers(2, 3, 5)) + 0.1])


@pytest.mark.parametrize("dtype", [np.int32])
@pytest.mark.parametrize("kind", ["Abs", "Neg", "Sign"])
def test_unary_ops_of_integers(kind: str, dtype: type) -> None:
    check(kind, [integers(12, dtype=dtype)])


def test_rounding_is_to_even() -> None:
    check("Round", [np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5], np.float32)])


def test_add_n() -> None:
    parts = [numbers(2, 3, seed=i) for i in range(4)]
    assert check("AddN", parts) == ["ADD_N"]
    assert check("AddN", parts[:2]) == ["ADD"]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_bias_add(layout: str) -> None:
    channels = 4 if layout == "NHWC" else 2
    values = [numbers(3, 2, 3, 4), numbers(channels, seed=5)]
    assert check("BiasAdd", values, constant=[1], data_format=layout) == ["ADD"]


def test_division_without_nan() -> None:
    x, y = numbers(2, 4), np.array([0, 1, -2, 0], np.float32)
    check("DivNoNan", [x, y])


@pytest.mark.parametrize(("kind", "index"), [("DivNoNan", 1), ("MulNoNan", 1), ("Xdivy", 0)])
def test_zero_takes_precedence_over_nan(kind: str, index: int) -> None:
    wild = np.array([[np.nan, np.inf, 0, 2]], np.float32)
    zeros = np.array([[0, 0, 0, 0], [1, -2, 3, 0]], np.float32)
    inputs = (wild, zeros) if index else (zeros, wild)
    check(kind, inputs)


@pytest.mark.parametrize("kind", ["Xlogy", "Xlog1py"])
def test_zero_takes_precedence_over_log_of_zero(kind: str) -> None:
    wild = np.array([[np.nan, np.inf, 0, -1, -5, 0.5]], np.float32)
    check(kind, [np.zeros((2, 6), np.float32), wild])
    x = np.array([[2], [-0.5]], np.float32)
    check(kind, [x, abs(numbers(2, 3)) + np.float32(0.1)], tolerance=1e-6)


def test_expm1_and_log1p() -> None:
    # Their difference to 1 has the precision of float32 around 1.
    check("Expm1", [numbers(2, 3)], tolerance=1e-6)
    check("Log1p", [abs(numbers(2, 3))], tolerance=1e-6)


@pytest.mark.parametrize("target", [DType.INT32, DType.INT64, DType.BOOL, DType.UINT8, DType.FLOAT])
@pytest.mark.parametrize("source", [np.float32, np.int32, np.int64, np.uint8, np.bool_])
def test_casts(target: DType, source: type) -> None:
    x = integers(12, low=0, high=9).astype(source)
    check("Cast", [x], SrcT=numpy_type(x), DstT=target)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, -1])
def test_cumulative_sums(exclusive: bool, reverse: bool, axis: int) -> None:
    values = [numbers(3, 4, 2), np.array(axis, np.int32)]
    operators = check("Cumsum", values, constant=[1], exclusive=exclusive, reverse=reverse)
    assert operators == ["CUMSUM"]


def test_type_without_a_kernel_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="not for int32"):
        check("Sqrt", [integers(3)])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_squares_of_integers(dtype: type) -> None:
    assert check("Square", [integers(3, 4, dtype=dtype)]) == ["MUL"]


def test_signs_of_int64() -> None:
    check("Sign", [np.array([-(2**40), 0, 3, 2**50])])


def test_bitcast() -> None:
    check("Bitcast", [numbers(3, 4)], T=DType.FLOAT, type=DType.UINT8)
    check("Bitcast", [integers(3, 4, dtype=np.int8)], T=DType.INT8, type=DType.INT32)
