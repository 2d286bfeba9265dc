"""Writing slices to places."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import OpCase, Partly, case, refused, unlike
from tests.ops.graphs import f32, i32, run, run_all


def test_updates_of_one_place_add_up() -> None:
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
def test_a_copy_is_changed(op: str, expected: list[int]) -> None:
    x = f32(10, 20)
    assert run(op, x, i32([[0], [0]]), f32(2, 3)).tolist() == expected
    assert x.tolist() == [10, 20]


def test_places_outside_are_refused() -> None:
    with pytest.raises(InvalidGraphError, match=r"index 5 is not in \[0, 2\)"):
        run("TensorScatterUpdate", f32(1, 2), i32([[5]]), f32([9]))
    with pytest.raises(InvalidGraphError, match="updates of shape"):
        run("TensorScatterUpdate", f32(1, 2), i32([[0]]), f32(9, 9))


def test_slices_sorted_into_tensors_and_stitched_again() -> None:
    x, kinds = f32([[1], [2], [3]]), i32(1, 0, 1)
    parts = run_all("DynamicPartition", x, kinds, num_partitions=2)
    assert [p.tolist() for p in parts] == [[[2]], [[1], [3]]]
    whole = run("DynamicStitch", i32([1]), i32(0, 2), *parts, N=2)
    np.testing.assert_array_equal(whole, x)


def test_of_two_slices_for_one_place_the_later_wins() -> None:
    assert run("DynamicStitch", i32([0]), i32([0]), f32([1]), f32([2]), N=2).tolist() == [2]


def test_values_at_some_places() -> None:
    out = run("SparseToDense", i32([[0, 1], [1, 0]]), i32(2, 2), f32(5, 6), f32(0))
    assert out.tolist() == [[0, 5], [6, 0]]


def test_segments() -> None:
    x = f32([[1], [2], [4]])
    assert run("SegmentSum", x, i32(0, 0, 2)).tolist() == [[3], [0], [4]]
    assert run("SegmentMean", x, i32(0, 0, 1)).tolist() == [[1.5], [4]]
    assert run("SegmentMax", x, i32(0, 0, 2)).tolist() == [[2], [0], [4]]
    assert run("UnsortedSegmentSum", x, i32(1, -1, 1), i32(2)).tolist() == [[0], [5]]
    with pytest.raises(InvalidGraphError, match="ascending"):
        run("SegmentSum", x, i32(1, 0, 0))


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


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
