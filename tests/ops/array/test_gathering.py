"""Gathering, choosing, casting."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import OpCase, case, refused, unlike
from tests.ops.graphs import f32, i32, run

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_slices_are_gathered() -> None:
    np.testing.assert_array_equal(run("Gather", X, i32([[2], [0]])), X[[[2], [0]]])
    np.testing.assert_array_equal(run("GatherV2", X, i32(3, 0), i32(1)), X[:, [3, 0]])
    assert run("GatherV2", X, i32(2), i32(0)).shape == (4,)


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_outside_is_refused(index: int) -> None:
    for op, rest in (("Gather", ()), ("GatherV2", (i32(0),))):
        with pytest.raises(InvalidGraphError, match=rf"index {index} is not in \[0, 3\)"):
            run(op, X, i32([0, index]), *rest)


def test_batches_are_gathered_side_by_side() -> None:
    out = run("GatherV2", X, i32([[0], [1], [3]]), i32(1), batch_dims=1)
    np.testing.assert_array_equal(out, [[0], [5], [11]])


def test_index_vectors() -> None:
    np.testing.assert_array_equal(run("GatherNd", X, i32([[2, 1], [0, 0]])), [9, 0])
    np.testing.assert_array_equal(run("GatherNd", X, i32([[2], [0]])), X[[2, 0]])
    with pytest.raises(InvalidGraphError, match=r"index 4 is not in \[0, 4\)"):
        run("GatherNd", X, i32([[0, 4]]))


def test_a_vector_chooses_rows_and_a_matrix_elements() -> None:
    rows = run("Select", np.array([True, False, True]), X, -X)
    np.testing.assert_array_equal(rows, X * f32([[1], [-1], [1]]))
    np.testing.assert_array_equal(run("Select", X > 5, X, -X), np.where(X > 5, X, -X))
    with pytest.raises(InvalidGraphError, match="the branches' shape"):
        run("Select", np.array([True, False]), X, -X)


def test_the_newer_choice_broadcasts() -> None:
    out = run("SelectV2", np.array([[True], [False]]), f32(1, 2), f32(0))
    np.testing.assert_array_equal(out, [[1, 2], [0, 0]])


def test_places_that_are_not_zero() -> None:
    out = run("Where", i32([[0, 5], [7, 0]]))
    assert (out.tolist(), out.dtype) == ([[0, 1], [1, 0]], np.int64)


def test_fractions_are_cut_off() -> None:
    out = run("Cast", f32(-1.7, 1.7), SrcT=np.float32, DstT=np.int32)
    assert (out.tolist(), out.dtype) == ([-1, 1], np.int32)


def test_integers_wrap_when_cast() -> None:
    assert run("Cast", i32(300, -1), SrcT=np.int32, DstT=np.uint8).tolist() == [44, 255]
    assert run("Cast", f32(300, -1), SrcT=np.float32, DstT=np.uint8).tolist() == [44, 255]


def test_narrow_floats() -> None:
    out = run("Cast", f32(1, 3.14159), SrcT=np.float32, DstT=DType.BFLOAT16)
    assert (out.dtype, out.astype(float).tolist()) == (np.dtype(ml_dtypes.bfloat16), [1, 3.140625])


def test_truth_is_one() -> None:
    out = run("Cast", np.array([True, False]), SrcT=np.bool_, DstT=np.float32)
    assert (out.tolist(), out.dtype) == ([1, 0], np.float32)


def test_one_place_of_many() -> None:
    out = run("OneHot", i32(1, -1, 3), i32(3), f32(5), f32(-5))
    np.testing.assert_array_equal(out, [[-5, 5, -5], [-5, -5, -5], [-5, -5, -5]])
    across = run("OneHot", i32(1, 0), i32(2), i32(1), i32(0), axis=0)
    np.testing.assert_array_equal(across, [[0, 1], [1, 0]])


def test_a_depth_that_no_memory_holds_is_refused() -> None:
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


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()


def test_elements_of_a_vector_are_gathered() -> None:
    for op, rest in (("Gather", []), ("GatherV2", [i32(0)])):
        assert run(op, f32(5, 6, 7), i32([2, 0], [1, 1]), *rest).tolist() == [[7, 5], [6, 6]]
        with pytest.raises(InvalidGraphError):
            run(op, f32(5), i32([0]), *rest)
