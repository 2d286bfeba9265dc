"""Gather, Select, Where, Cast, and OneHot."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import case, case_tests, refused, unlike
from tests.ops.graphs import f32, i32, run

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_gather() -> None:
    np.testing.assert_array_equal(run("Gather", X, i32([[2], [0]])), X[[[2], [0]]])
    np.testing.assert_array_equal(run("GatherV2", X, i32(3, 0), i32(1)), X[:, [3, 0]])
    assert run("GatherV2", X, i32(2), i32(0)).shape == (4,)


@pytest.mark.parametrize("index", [-1, 3])
def test_gather_of_invalid_index_is_refused(index: int) -> None:
    for op, rest in (("Gather", ()), ("GatherV2", (i32(0),))):
        with pytest.raises(InvalidGraphError, match=rf"index {index} is not in \[0, 3\)"):
            run(op, X, i32([0, index]), *rest)


def test_gather_with_batch_dims() -> None:
    out = run("GatherV2", X, i32([[0], [1], [3]]), i32(1), batch_dims=1)
    np.testing.assert_array_equal(out, [[0], [5], [11]])


def test_gather_nd() -> None:
    np.testing.assert_array_equal(run("GatherNd", X, i32([[2, 1], [0, 0]])), [9, 0])
    np.testing.assert_array_equal(run("GatherNd", X, i32([[2], [0]])), X[[2, 0]])
    with pytest.raises(InvalidGraphError, match=r"index 4 is not in \[0, 4\)"):
        run("GatherNd", X, i32([[0, 4]]))


def test_select_by_row_or_element() -> None:
    rows = run("Select", np.array([True, False, True]), X, -X)
    np.testing.assert_array_equal(rows, X * f32([[1], [-1], [1]]))
    np.testing.assert_array_equal(run("Select", X > 5, X, -X), np.where(X > 5, X, -X))
    with pytest.raises(InvalidGraphError, match="the branches' shape"):
        run("Select", np.array([True, False]), X, -X)


def test_select_v2_broadcasts() -> None:
    out = run("SelectV2", np.array([[True], [False]]), f32(1, 2), f32(0))
    np.testing.assert_array_equal(out, [[1, 2], [0, 0]])


def test_where() -> None:
    out = run("Where", i32([[0, 5], [7, 0]]))
    assert (out.tolist(), out.dtype) == ([[0, 1], [1, 0]], np.int64)


def test_cast_wraps() -> None:
    assert run("Cast", i32(300, -1), SrcT=np.int32, DstT=np.uint8).tolist() == [44, 255]
    assert run("Cast", f32(300, -1), SrcT=np.float32, DstT=np.uint8).tolist() == [44, 255]


def test_cast_to_bfloat16() -> None:
    out = run("Cast", f32(1, 3.14159), SrcT=np.float32, DstT=DType.BFLOAT16)
    assert (out.dtype, out.astype(float).tolist()) == (np.dtype(ml_dtypes.bfloat16), [1, 3.140625])


def test_cast_of_bool() -> None:
    out = run("Cast", np.array([True, False]), SrcT=np.bool_, DstT=np.float32)
    assert (out.tolist(), out.dtype) == ([1, 0], np.float32)


def test_one_hot() -> None:
    out = run("OneHot", i32(1, -1, 3), i32(3), f32(5), f32(-5))
    np.testing.assert_array_equal(out, [[-5, 5, -5], [-5, -5, -5], [-5, -5, -5]])
    across = run("OneHot", i32(1, 0), i32(2), i32(1), i32(0), axis=0)
    np.testing.assert_array_equal(across, [[0, 1], [1, 0]])


def test_huge_one_hot_depth_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="passes 4294967296 bytes"):
        run("OneHot", i32(1, 2), i32(2**31 - 1), f32(1), f32(0))


OP_CASES = [
    case("Gather", [(5, 3), (2, 4)], [(2, 4, 3)]),
    case("Gather", [(5, -1), ()], [(-1,)]),
    case("Gather", [None, (2,)], [None]),
    case("Gather", [(5,), None], [None]),
    refused("Gather", [(), (2,)]),
    case("GatherV2", [(5, 6, 7), (2, 4), 1], [(5, 2, 4, 7)]),
    case("GatherV2", [(5, 6, 7), (2, 4), -1], [(5, 6, 2, 4)]),
    case("GatherV2", [(5, 6, 7), (5, 4), 1], [(5, 4, 7)], batch_dims=1),
    case("GatherV2", [(5, 6, 7), (5, 6, 4), 2], [(5, 6, 4)], batch_dims=-1),
    case("GatherV2", [(5, 6, 7), (2, 4), ()], [(-1, -1, -1, -1)]),
    case("GatherV2", [(5, 6, 7), (5, 4), ()], [(-1, -1, -1)], batch_dims=1),
    case("GatherV2", [None, (2, 4), 0], [None]),
    case("GatherV2", [(5, 6), None, 0], [None]),
    refused("GatherV2", [(5, 6), (2,), 2]),
    case("GatherNd", [(5, 6, 7), (3, 4, 2)], [(3, 4, 7)]),
    case("GatherNd", [(5, 6, 7), (3,)], [()]),
    case("GatherNd", [(5, 6, 7), (4, -1)], [None]),
    case("GatherNd", [None, (4, 1)], [None]),
    refused("GatherNd", [(5, 6), (4, 3)]),
    refused("GatherNd", [(5, 6), ()]),
    case("OneHot", [(2, 3), 4, 1.0, 0.0], [(2, 3, 4)]),
    case("OneHot", [(2, 3), 4, 1.0, 0.0], [(2, 4, 3)], axis=1),
    case("OneHot", [(2, 3), (), 1.0, 0.0], [(-1, 2, 3)], axis=0),
    case("OneHot", [None, 4, 1.0, 0.0], [None]),
    unlike(refused("OneHot", [(2, 3), 4, 1.0, 0.0], axis=3)),
    case("GatherNd", [(5, 6), (4, 0)], [(4, 5, 6)]),
    unlike(refused("OneHot", [(2, 3), 4, 1.0, 0.0], axis=4)),
]

test_shapes_and_costs = case_tests(OP_CASES)


def test_gather_from_a_vector() -> None:
    for op, rest in (("Gather", []), ("GatherV2", [i32(0)])):
        assert run(op, f32(5, 6, 7), i32([2, 0], [1, 1]), *rest).tolist() == [[7, 5], [6, 6]]
        with pytest.raises(InvalidGraphError):
            run(op, f32(5), i32([0]), *rest)
