"""Reductions."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case, case_tests, refused, unlike
from tests.ops.graphs import f32, i32, run

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axes", [(0,), (1, 2), (-1,), (), (0, 1, 2)])
@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min", "Prod"])
def test_reduction_over_axes(op: str, axes: tuple[int, ...], keep: bool) -> None:
    out = run(op, X, i32(list(axes)), keep_dims=keep)
    expected = getattr(np, op.lower())(X.astype(np.float64), axis=axes, keepdims=keep)
    assert (out.dtype, out.shape) == (np.float32, expected.shape)
    np.testing.assert_allclose(out, expected, rtol=1e-6)


def test_duplicate_axis_is_reduced_once() -> None:
    assert run("Sum", X, i32(0, 0, -3)).shape == (3, 4)
    assert run("Mean", np.float32([[0, 1, 2], [3, 4, 5]]), i32(0, 0)).tolist() == [1.5, 2.5, 3.5]


def test_invalid_axis_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="no axis 3 among 3"):
        run("Sum", X, i32(3))


def test_reductions_of_empty_tensor() -> None:
    empty = np.zeros((0, 2), np.float32)
    assert run("Sum", empty, i32(0)).tolist() == [0, 0]
    assert run("Prod", empty, i32(0)).tolist() == [1, 1]
    assert run("Max", empty, i32(0)).tolist() == [-np.inf, -np.inf]
    assert np.isnan(run("Mean", empty, i32(0))).all()
    assert run("Max", np.zeros((0, 2), np.int32), i32(0)).tolist() == [-(2**31)] * 2


def test_integer_sum_wraps() -> None:
    out = run("Sum", np.int8([100, 100]), i32(0))
    assert (out.dtype, int(out)) == (np.int8, -56)


def test_all_and_any() -> None:
    x = np.array([[True, False], [True, True]])
    assert run("All", x, i32(1)).tolist() == [False, True]
    assert run("Any", x, i32(0)).tolist() == [True, True]


def test_arg_max_and_arg_min() -> None:
    x = f32([[1, 3, 3], [2, 0, 0]])
    assert run("ArgMax", x, i32(1)).tolist() == [1, 0]
    out = run("ArgMin", x, i32(1), output_type=np.int32)
    assert (out.tolist(), out.dtype) == ([0, 1], np.int32)


def test_arg_max_ignores_nan() -> None:
    nan = np.nan
    x = f32([[1, nan, 3], [nan, 2, 2], [nan, nan, nan]])
    assert run("ArgMax", x, i32(1)).tolist() == [2, 1, 0]
    assert run("ArgMin", x, i32(1)).tolist() == [0, 1, 0]


def test_arg_max_of_empty_tensor_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="no elements"):
        run("ArgMax", np.zeros((2, 0), np.float32), i32(1))


@pytest.mark.parametrize(
    ("exclusive", "reverse", "expected"),
    [
        (False, False, [1, 3, 6]),
        (True, False, [0, 1, 3]),
        (False, True, [6, 5, 3]),
        (True, True, [5, 3, 0]),
    ],
)
def test_cumsum(exclusive: bool, reverse: bool, expected: list[int]) -> None:
    out = run("Cumsum", f32(1, 2, 3), i32(0), exclusive=exclusive, reverse=reverse)
    assert out.tolist() == expected


def test_l2_loss() -> None:
    out = run("L2Loss", f32(1, 2, 3))
    assert (float(out), out.shape, out.dtype) == (7, (), np.float32)


OP_CASES = [
    *(case(op, [(2, 3, 4), [1]], [(2, 4)], 16) for op in ("Max", "Min", "Prod", "Sum")),
    case("Sum", [(2, 3, 4), [-1, 0]], [(1, 3, 1)], 21, keep_dims=True),
    case("Sum", [(2, -1, 4), 0], [(-1, 4)], None),
    unlike(case("Sum", [(2, 3, 4), (2,)], [(-1,)], None)),
    case("Sum", [(2, 3, 4), (-1,)], [None], None),
    case("Sum", [(2, 3, 4), (2,)], [(-1, -1, -1)], None, keep_dims=True),
    unlike(case("Sum", [(2, 3, 4), ()], [(-1, -1)], None)),
    unlike(case("Sum", [(), ()], [None], None)),
    case("Sum", [None, [0]], [None], None),
    refused("Sum", [(2, 3), [2]]),
    case("Mean", [(2, 3, 4), [1]], [(2, 4)], 24),
    case("EuclideanNorm", [(2, 3, 4), [1]], [(2, 4)], 48),
    case("All", [(2, 3), [1]], [(2,)]),
    case("Any", [(2, 3), [0, 1]], [()]),
    case("ArgMax", [(2, 3, 4), 1], [(2, 4)], 16),
    case("ArgMax", [(2, 3, 4), -1], [(2, 3)], 18),
    case("ArgMax", [(2, 3, 4), ()], [(-1, -1)], None),
    case("ArgMin", [(5,), 0], [()], 4),
    case("ArgMin", [None, 0], [None], None),
    refused("ArgMax", [(2, 3), 2]),
    case("Cumsum", [(2, 3), 0], [(2, 3)], 6),
    case("Cumprod", [(2, 3), 0], [(2, 3)], 6),
    case("L2Loss", [(2, 3)], [()], 17),
    case("L2Loss", [None], [()], None),
]

test_shapes_and_costs = case_tests(OP_CASES)


def test_euclidean_norm() -> None:
    x = f32([[3, 4], [5, 12]])
    assert run("EuclideanNorm", x, i32([1])).tolist() == [5, 13]
    assert run("EuclideanNorm", x, i32([1]), keep_dims=True).tolist() == [[5], [13]]
    assert run("EuclideanNorm", np.array([3j, 4], np.complex64), i32([0])).tolist() == 5


def test_integer_mean_truncates() -> None:
    assert run("Mean", i32([[1, 2], [-1, -2]]), i32([1])).tolist() == [1, -1]
    assert run("Mean", i32(np.zeros((2, 0))), i32([1])).tolist() == [0, 0]


def test_int64_mean_is_exact() -> None:
    """float64 would lose the last digits; TensorFlow divides integers."""
    assert run("Mean", np.int64([2**55 + 3]), i32([0])).tolist() == 2**55 + 3
    assert run("Mean", np.int64([-(2**60) - 3, -2]), i32([0])).tolist() == -(2**59) - 2
    assert run("Mean", np.uint64([2**63 + 5, 2]), i32([0])).tolist() == 2**62 + 3
    assert run("Mean", np.int64([[2**55 + 3], [-1]]), i32([1])).tolist() == [2**55 + 3, -1]


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32])
def test_integer_mean_does_not_overflow(kind: type) -> None:
    most = np.iinfo(kind).max
    out = run("Mean", np.array([most, most, most - 2], kind), i32(0))
    assert (out.dtype, int(out)) == (kind, most - 1)
