"""Gathering, selecting, and scattering elements."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import Partly, case, case_tests, refused, unlike
from tests.ops.graphs import f32, i32, run, run_all

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


def test_gather_from_a_vector() -> None:
    for op, rest in (("Gather", []), ("GatherV2", [i32(0)])):
        assert run(op, f32(5, 6, 7), i32([2, 0], [1, 1]), *rest).tolist() == [[7, 5], [6, 6]]
        with pytest.raises(InvalidGraphError):
            run(op, f32(5), i32([0]), *rest)


def test_scatter_nd_adds_duplicates() -> None:
    out = run("ScatterNd", i32([[1], [1], [0]]), f32(1, 2, 4), i32([3]))
    assert out.tolist() == [4, 3, 0]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("TensorScatterAdd", [15, 20]),
        ("TensorScatterSub", [5, 20]),
        ("TensorScatterMax", [10, 20]),
        ("TensorScatterMin", [2, 20]),
        ("TensorScatterUpdate", [3, 20]),
    ],
)
def test_tensor_scatter_changes_a_copy(op: str, expected: list[int]) -> None:
    x = f32(10, 20)
    assert run(op, x, i32([[0], [0]]), f32(2, 3)).tolist() == expected
    assert x.tolist() == [10, 20]


def test_invalid_scatter_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match=r"index 5 is not in \[0, 2\)"):
        run("TensorScatterUpdate", f32(1, 2), i32([[5]]), f32([9]))
    with pytest.raises(InvalidGraphError, match="updates of shape"):
        run("TensorScatterUpdate", f32(1, 2), i32([[0]]), f32(9, 9))


def test_dynamic_partition_and_stitch() -> None:
    x, partitions = f32([[1], [2], [3]]), i32(1, 0, 1)
    parts = run_all("DynamicPartition", x, partitions, num_partitions=2)
    assert [p.tolist() for p in parts] == [[[2]], [[1], [3]]]
    whole = run("DynamicStitch", i32([1]), i32(0, 2), *parts, N=2)
    np.testing.assert_array_equal(whole, x)


def test_dynamic_stitch_keeps_the_last_duplicate() -> None:
    assert run("DynamicStitch", i32([0]), i32([0]), f32([1]), f32([2]), N=2).tolist() == [2]


def test_sparse_to_dense() -> None:
    out = run("SparseToDense", i32([[0, 1], [1, 0]]), i32(2, 2), f32(5, 6), f32(0))
    assert out.tolist() == [[0, 5], [6, 0]]


ADDED = (
    *("ScatterNdNonAliasingAdd", "TensorScatterAdd", "TensorScatterMax", "TensorScatterMin"),
    "TensorScatterSub",
)

OP_CASES += [
    case("ScatterNd", [(4, 1), (4, 3), [5, 3]], [(5, 3)]),
    case("ScatterNd", [(4, 1), (4, 3), Partly((-1, 3))], [(-1, 3)]),
    case("ScatterNd", [(4, 2), (4,), (2,)], [(-1, -1)]),
    case("ScatterNd", [(4, -1), (4, 9), [5, 3]], [(5, 3)]),
    case("ScatterNd", [None, None, [5, 3]], [(5, 3)]),
    refused("ScatterNd", [(4, 1), (4, 2), [5, 3]]),
    refused("ScatterNd", [(4, 1), (3, 3), [5, 3]]),
    unlike(refused("ScatterNd", [(4, 3), (4,), [5, 3]])),
    refused("ScatterNd", [(), (4,), [5, 3]]),
    *(case(op, [(5, 3), (4, 1), (4, 3)], [(5, 3)], 12) for op in ADDED),
    *(case(op, [(5, -1), (4, 1), None], [(5, -1)], None) for op in ADDED),
    *(refused(op, [(5, 3), (4, 1), (4, 2)]) for op in ADDED),
    case("TensorScatterUpdate", [(5, 3), (2, 2, 2), (2, 2)], [(5, 3)]),
    unlike(refused("TensorScatterUpdate", [(5, 3), (2, 2, 3), (2, 2)])),
    case("SparseToDense", [(4, 2), [5, 3], (4,), 0.0], [(5, 3)]),
    case("SparseToDense", [(4, 2), (3,), (4,), 0.0], [(-1, -1, -1)]),
    case("InplaceAdd", [(5, 3), (2,), (2, 3)], [(5, 3)]),
    case("InplaceSub", [(5, 3), (2,), (2, 3)], [(5, 3)]),
    case("InplaceUpdate", [(5, 3), (2,), (2, 3)], [(5, 3)]),
    refused("ScatterNd", [(4, 0), (4, 3), [5, 3]]),
    case("ScatterNd", [(1,), (3,), [5, 3]], [(5, 3)]),
]


OP_CASES += [
    case("Select", [(2, 3), (2, -1), (-1, 3)], [(2, 3)]),
    case("Select", [(2,), (2, 3), (2, 3)], [(2, 3)]),
    case("Select", [(), (2, 3), None], [(2, 3)]),
    case("Select", [None, None, None], [None]),
    case("Select", [(2, 3), (2, -1), None], [(2, 3)]),
    refused("Select", [(), (2, 3), (2, 4)]),
    refused("Select", [(2, 4), (2, 3), (2, 3)]),
    case("RefSelect", [(), (2, 3), (2, 3)], [(2, 3)]),
    case("RefSelect", [(), (2, 3), (2, 4)], [None]),
    case("RefSelect", [(), (2, -1), (2, -1)], [None]),
    case("SelectV2", [(2, 1, 1), (3, 1), (4,)], [(2, 3, 4)]),
    case("SelectV2", [(), (3, 1), (1, 4)], [(3, 4)]),
    case("SelectV2", [None, (3, 1), (4,)], [None]),
    refused("SelectV2", [(2,), (3,), ()]),
    case("Where", [(4, 5, 6)], [(-1, 3)]),
    case("Where", [None], [(-1, -1)]),
]


OP_CASES += [
    case("UnravelIndex", [(), [2, 3]], [(2,)]),
    case("UnravelIndex", [(5,), [2, 3, 4]], [(3, 5)]),
    case("UnravelIndex", [(5, 2), (-1,)], [(-1, 10)]),
    case("UnravelIndex", [(-1,), (2,)], [(2, -1)]),
    case("UnravelIndex", [None, (2,)], [None]),
    refused("UnravelIndex", [(5,), (2, 2)]),
    case("DataFormatDimMap", [(3,)], [(3,)]),
    case("DataFormatVecPermute", [(4, 2)], [(4, 2)]),
]


test_shapes_and_costs = case_tests(OP_CASES)
