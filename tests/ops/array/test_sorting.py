"""Top-k, unique, search, and counting ops."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case, case_tests, refused, unlike
from tests.ops.graphs import f32, i32, run, run_all


def test_top_k() -> None:
    values, places = run_all("TopKV2", f32([[1, 3, 2, 3]]), i32(3))
    assert (values.tolist(), places.tolist()) == ([[3, 3, 2]], [[1, 3, 2]])
    assert places.dtype == np.int32
    with pytest.raises(InvalidGraphError, match="fewer than 5 elements"):
        run_all("TopKV2", f32([[1, 3, 2, 3]]), i32(5))


def test_top_k_of_unsigned_integers() -> None:
    values, _ = run_all("TopKV2", np.uint8([3, 200, 7]), i32(2))
    assert values.tolist() == [200, 7]


def test_nth_element() -> None:
    x = f32([[5, 1, 3], [2, 9, 4]])
    assert run("NthElement", x, i32(1)).tolist() == [3, 4]
    assert run("NthElement", x, i32(0), reverse=True).tolist() == [5, 9]


def test_unique() -> None:
    values, which = run_all("Unique", i32(4, 2, 4, 1))
    assert (values.tolist(), which.tolist()) == ([4, 2, 1], [0, 1, 0, 2])
    *_, counts = run_all("UniqueWithCounts", i32(4, 2, 4, 1))
    assert counts.tolist() == [2, 1, 1]


def test_unique_rows() -> None:
    values, which = run_all("UniqueV2", i32([[1, 2], [3, 4], [1, 2]]), i32([0]))
    assert (values.tolist(), which.tolist()) == ([[1, 2], [3, 4]], [0, 1, 0])


def test_unique_strings() -> None:
    values, _ = run_all("Unique", np.array([b"b", b"a", b"b"], dtype=object))
    assert values.tolist() == [b"b", b"a"]


def test_list_diff() -> None:
    values, places = run_all("ListDiff", i32(1, 2, 3, 2), i32([2]))
    assert (values.tolist(), places.tolist()) == ([1, 3], [0, 2])


def test_in_top_k() -> None:
    rows = f32([[1, 5, 3], [4, 4, 1], [1, 2, 3]])
    assert run("InTopKV2", rows, i32(2, 1, 7), i32(2)).tolist() == [True, True, False]
    assert run("InTopKV2", rows, i32(2, 1, 0), i32(1)).tolist() == [False, True, False]


def test_bounds_and_bucketize() -> None:
    rows = f32([[1, 2, 2, 5]])
    assert run("LowerBound", rows, f32([[2, 9]])).tolist() == [[1, 4]]
    assert run("UpperBound", rows, f32([[2, 0]])).tolist() == [[3, 0]]
    assert run("Bucketize", f32(0, 1, 2.5), boundaries=[1.0, 2.0]).tolist() == [0, 1, 2]


def test_unravel_index() -> None:
    assert run("UnravelIndex", i32(0, 5), i32(2, 3)).tolist() == [[0, 1], [0, 2]]


def test_data_format_ops() -> None:
    formats = {"src_format": "NHWC", "dst_format": "NCHW"}
    assert run("DataFormatVecPermute", i32(1, 2, 3, 4), **formats).tolist() == [1, 4, 2, 3]
    assert run("DataFormatDimMap", i32(0, 1, -1), **formats).tolist() == [0, 2, 1]


OP_CASES = [
    case("TopKV2", [(3, 9), 4], [(3, 4), (3, 4)]),
    case("TopKV2", [(3, 9), ()], [(3, -1), (3, -1)]),
    case("TopKV2", [None, 4], [None, None]),
    refused("TopKV2", [(), 4]),
    case("TopK", [(9,)], [(4,), (4,)], k=4),
    case("NthElement", [(3, 4, 9), 2], [(3, 4)]),
    case("NthElement", [(9,), 2], [()]),
    case("NthElement", [None, 2], [None]),
    refused("NthElement", [(), 0]),
    case("Unique", [(9,)], [(-1,), (9,)]),
    case("UniqueWithCounts", [(9,)], [(-1,), (9,), (-1,)]),
    unlike(case("UniqueV2", [(4, 5), [0]], [(-1, -1), (-1,)])),
    unlike(case("UniqueWithCountsV2", [(4, 5), [1]], [(-1, -1), (-1,), (-1,)])),
    case("UniqueV2", [None, [0]], [None, (-1,)]),
    case("ListDiff", [(4,), (5,)], [(-1,), (-1,)]),
    case("InTopK", [(4, 5), (4,)], [(4,)], 20, k=2),
    case("InTopK", [(-1, 5), (4,)], [(4,)], None, k=2),
    case("InTopKV2", [(4, 5), (-1,), 2], [(4,)], 20),
    refused("InTopK", [(4,), (4,)], k=2),
    refused("InTopK", [(4, 5), (4, 1)], k=2),
    case("LowerBound", [(2, 9), (2, 3)], [(2, 3)]),
    case("UpperBound", [(2, 9), None], [None]),
    refused("LowerBound", [(9,), (2, 3)]),
    refused("UpperBound", [(2, 9), (3,)]),
    case("Bucketize", [(4, -1)], [(4, -1)], boundaries=(0.0, 1.0)),
]

test_shapes_and_costs = case_tests(OP_CASES)


def test_top_k_with_k_as_attribute() -> None:
    x = f32([[1, 3, 2, 3]])
    values, places = run_all("TopK", x, k=2)
    assert (values.tolist(), places.tolist()) == ([[3, 3]], [[1, 3]])
    assert run("InTopK", x, i32([2]), k=2).tolist() == [False]
    assert run("InTopK", x, i32([2]), k=3).tolist() == [True]
    assert run("InTopK", x, i32([3]), k=1).tolist() == [True]
