"""Scatter, partition, stitch, and segment ops."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import Partly, case, case_tests, refused, unlike
from tests.ops.graphs import f32, i32, run, run_all


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

OP_CASES = [
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

test_shapes_and_costs = case_tests(OP_CASES)
