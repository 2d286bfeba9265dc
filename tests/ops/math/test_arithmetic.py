"""Arithmetic: types, broadcasting, overflow, and division by zero."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case, case_tests, refused, unlike
from tests.ops.graphs import f32, i32, run


def test_add_broadcasts_and_keeps_the_dtype() -> None:
    out = run("AddV2", f32([[1], [2]]), f32(10, 20))
    np.testing.assert_array_equal(out, [[11, 21], [12, 22]])
    assert out.dtype == np.float32


def test_sum_of_scalars_is_an_array() -> None:
    out = run("Add", f32(1), f32(2))
    assert isinstance(out, np.ndarray)
    assert (out.shape, out.dtype, float(out)) == ((), np.float32, 3.0)


def test_integers_wrap_around() -> None:
    assert run("Add", np.int8([127, -128]), np.int8([1, -1])).tolist() == [-128, 127]
    assert run("Mul", i32(2**31 - 1), i32(2)).tolist() == -2


def test_mixed_dtypes_are_refused() -> None:
    with pytest.raises(InvalidGraphError, match=r"'y' \(Add\) mixes float32 with int32"):
        run("Add", f32(1, 2), i32(1, 2), T=np.float32)


def test_integer_division_rounding() -> None:
    x, y = i32(7, -7, 7, -7), i32(2, 2, -2, -2)
    assert run("Div", x, y).tolist() == [3, -3, -3, 3]
    assert run("FloorDiv", x, y).tolist() == [3, -4, -4, 3]
    assert run("FloorMod", x, y).tolist() == [1, 1, -1, -1]
    assert run("TruncateMod", x, y).tolist() == [1, -1, 1, -1]


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_truncate_div_of_floats(kind: type) -> None:
    x, y = np.array([7.5, -7.5, 1, 1], kind), np.array([2, 2, -4, 0], kind)
    out = run("TruncateDiv", x, y)
    assert (out.dtype, out.tolist()) == (kind, [3, -3, 0, np.inf])


@pytest.mark.parametrize("op", ["Div", "FloorDiv", "FloorMod", "TruncateMod"])
def test_integer_division_by_zero_is_an_error(op: str) -> None:
    with pytest.raises(InvalidGraphError, match="division by zero"):
        run(op, i32(1, 2), i32(1, 0))


def test_division_of_floats_by_zero_is_infinite() -> None:
    out = run("RealDiv", f32(1, -1, 0), f32(0, 0, 0))
    np.testing.assert_array_equal(out, [np.inf, -np.inf, np.nan])


def test_no_nan_variants() -> None:
    assert run("DivNoNan", f32(1, 4), f32(0, 2)).tolist() == [0, 2]
    assert run("MulNoNan", f32(np.nan, 4), f32(0, 2)).tolist() == [0, 8]
    assert run("Xlogy", f32(0, 1), f32(0, np.e)).tolist() == pytest.approx([0, 1])


def test_equality_of_incompatible_shapes() -> None:
    assert run("Equal", f32(1, 2), f32(1, 2, 3), incompatible_shape_error=False).tolist() is False
    assert run("NotEqual", f32(1, 2), f32(1, 2, 3), incompatible_shape_error=False).tolist() is True
    with pytest.raises(InvalidGraphError, match="float32"):
        run("Equal", f32(1, 2), f32(1, 2, 3))


def test_bias_add() -> None:
    x = np.zeros((1, 2, 1, 3), np.float32)
    np.testing.assert_array_equal(run("BiasAdd", x, f32(1, 2, 3))[0, 1, 0], [1, 2, 3])
    first = run("BiasAdd", x, f32(1, 2), data_format="NCHW")
    np.testing.assert_array_equal(first[0, :, 0, 0], [1, 2])


def test_bias_of_wrong_length_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="a bias of 2 for 3 channels"):
        run("BiasAdd", np.zeros((4, 3), np.float32), f32(1, 2))


def test_add_n_needs_equal_shapes() -> None:
    assert run("AddN", f32(1, 2), f32(3, 4), f32(5, 6)).tolist() == [9, 12]
    with pytest.raises(InvalidGraphError, match="one shape"):
        run("AddN", f32(1, 2), f32(3))


def test_add_n_does_not_change_its_inputs() -> None:
    x = f32(1, 2)
    run("AddN", x, f32(3, 4), f32(5, 6))
    assert x.tolist() == [1, 2]


def test_negative_integer_powers_are_refused() -> None:
    with pytest.raises(InvalidGraphError, match="negative integer powers"):
        run("Pow", i32(2, 3), i32(1, -1))


def test_shifts_are_clamped_to_the_width() -> None:
    assert run("LeftShift", i32(1, 1), i32(31, 40)).tolist() == [-(2**31), -(2**31)]
    assert run("RightShift", i32(-8, 8), i32(1, -1)).tolist() == [-4, 8]


def test_add_concatenates_strings() -> None:
    words = np.array([b"a", b"b"], dtype=object)
    assert run("Add", words, words[::-1].copy()).tolist() == [b"ab", b"ba"]


LOGICAL = (
    *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "LogicalAnd", "LogicalOr"),
    "RightShift",
)
ONCE = (
    *("Add", "AddV2", "Atan2", "Div", "DivNoNan", "Equal", "Greater", "GreaterEqual", "Less"),
    *("LessEqual", "Maximum", "Minimum", "Mul", "MulNoNan", "NotEqual", "Pow", "RealDiv", "Sub"),
    "Xdivy",
)
TWICE = ("FloorDiv", "SquaredDifference", "TruncateDiv", "Xlog1py", "Xlogy")
THRICE = ("FloorMod", "Mod", "TruncateMod")

OP_CASES = [
    *(case(op, [(2, 1), (3,)], [(2, 3)], 0) for op in LOGICAL),
    *(case(op, [(2, 1), (3,)], [(2, 3)], 6) for op in ONCE),
    *(case(op, [(2, 1), (3,)], [(2, 3)], 12) for op in TWICE),
    *(case(op, [(2, 1), (3,)], [(2, 3)], 18) for op in THRICE),
    case("Add", [(-1, 1), (2, 3)], [(2, 3)], 6),
    case("Add", [(-1, 4), (1, 4)], [(-1, 4)], None),
    case("Add", [None, (2, 3)], [None], None),
    refused("Add", [(2,), (3,)]),
    case("LogicalAnd", [(-1,), (1,)], [(-1,)], 0),
    unlike(case("ApproximateEqual", [(2, -1), (-1, 3)], [(2, 3)], 18)),
    case("ApproximateEqual", [(2, 3), (2, 3)], [(2, 3)], 18),
    refused("ApproximateEqual", [(2, 1), (2, 3)]),
    case("AddN", [(2, 3), (2, 3), (2, 3)], [(2, 3)], 12),
    case("AddN", [(2, -1), None], [(2, -1)], None),
    refused("AddN", [(2, 3), (2, 4)]),
    case("AccumulateNV2", [(2, 3), (2, 3)], [(2, 3)], 6, shape=(2, 3)),
    case("BiasAdd", [(2, 3, 4, 5), (5,)], [(2, 3, 4, 5)], 120),
    case("BiasAdd", [(2, -1, 4, 5), (3,)], [(2, 3, 4, 5)], 120, data_format="NCHW"),
    case("BiasAdd", [(2, -1), (-1,)], [(2, -1)], None),
    case("BiasAdd", [None, (5,)], [None], None),
    refused("BiasAdd", [(2, 3, 4, 5), (3,)]),
    refused("BiasAdd", [(2, 3, 4, 5), (5,)], data_format="NCHW"),
    refused("BiasAdd", [(5,), (5,)]),
    refused("BiasAdd", [(2, 5), (5, 1)]),
    case("BiasAddV1", [(2, 3), (3,)], [(2, 3)], 6),
    case("BiasAddGrad", [(2, 3, 4, 5)], [(5,)]),
    case("BiasAddGrad", [(2, 3, 4, 5)], [(3,)], data_format="NCHW"),
    case("BiasAddGrad", [None], [(-1,)]),
    refused("BiasAddGrad", [(5,)]),
    case("ClipByValue", [(2, 3), (), ()], [(2, 3)], 12),
    case("BiasAddGrad", [(2, 5)], [(5,)]),
]

test_shapes_and_costs = case_tests(OP_CASES)


def test_approximate_equal() -> None:
    x, y = f32(1, 1, 1, np.nan), f32(1.25, 0.5, 1.5, np.nan)
    result = run("ApproximateEqual", x, y, tolerance=0.5)
    # A difference equal to the tolerance is too large.
    assert result.tolist() == [True, False, False, False]
    close = run("ApproximateEqual", f32(0, 0), f32(0.9e-5, 1.1e-5))
    assert close.tolist() == [True, False]


def test_clip_by_value() -> None:
    x = f32([[-3, 1], [2, 9]])
    assert run("ClipByValue", x, f32(-1), f32(2)).tolist() == [[-1, 1], [2, 2]]
    low, high = f32([[0, 2], [0, 0]]), f32([[1, 3], [1, 1]])
    assert run("ClipByValue", x, low, high).tolist() == [[0, 2], [1, 1]]
    # If the bounds cross, the lower bound applies, as in TensorFlow.
    assert run("ClipByValue", x, f32(5), f32(4)).tolist() == [[5, 5], [5, 5]]
    assert run("ClipByValue", x, f32([[5, 5], [5, 0]]), f32(4)).tolist() == [[5, 5], [5, 4]]
