"""Bincount ops."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case, case_tests, refused, unlike
from tests.ops.graphs import f32, i32, run

OP_CASES = [
    case("Bincount", [(4,), 7, (4,)], [(7,)]),
    case("Bincount", [(4,), (), (4,)], [(-1,)]),
    case("DenseBincount", [(4, 5), 7, (0,)], [(4, 7)]),
    case("DenseBincount", [(4,), 7, (0,)], [(7,)]),
    case("DenseBincount", [None, 7, (0,)], [None]),
    unlike(case("RaggedBincount", [(4,), (9,), 7, (0,)], [(3, 7)])),
    unlike(case("RaggedBincount", [(-1,), (9,), (), (0,)], [(-1, -1)])),
    unlike(refused("RaggedBincount", [(4, 1), (9,), 7, (0,)])),
    case("SparseBincount", [(4, 2), (4,), [5, 6], 7, (0,)], [(5, 7)]),
    case("SparseBincount", [(4, 1), (4,), [5], 7, (0,)], [(7,)]),
    unlike(case("SparseBincount", [(4, 2), (4,), [5, 6], (), (0,)], [(5, -1)])),
    unlike(case("SparseBincount", [(4, 2), (4,), (2,), 7, (0,)], [(-1, 7)])),
    case("SparseBincount", [(4, 2), (4,), (-1,), 7, (0,)], [None]),
    refused("SparseBincount", [(4, 3), (4,), [5, 6, 7], 7, (0,)]),
    case("HistogramFixedWidth", [(9,), (2,), 5], [(5,)]),
    case("HistogramFixedWidth", [(9,), (2,), ()], [(-1,)]),
    unlike(case("RaggedBincount", [(0,), (9,), 7, (0,)], [(-1, 7)])),
    unlike(case("RaggedBincount", [(1,), (9,), 7, (0,)], [(0, 7)])),
]

test_shapes_and_costs = case_tests(OP_CASES)


NO_WEIGHTS = np.zeros(0, np.float32)


def test_bincount() -> None:
    assert run("Bincount", i32(0, 2, 2, 5), i32(4), NO_WEIGHTS).tolist() == [1, 0, 2, 0]
    assert run("Bincount", i32(0, 2, 2, 5), i32(4), f32(1, 2, 0.5, 9)).tolist() == [1, 0, 2.5, 0]
    assert run("DenseBincount", i32([[1, 1], [0, 3]]), i32(3), NO_WEIGHTS).tolist() == [
        [0, 2, 0],
        [1, 0, 0],
    ]
    binary = run("DenseBincount", i32(1, 1, 2), i32(3), NO_WEIGHTS, binary_output=True)
    assert binary.tolist() == [0, 1, 1]


def test_sparse_bincount() -> None:
    vector = run(
        "SparseBincount", np.int64([[0], [4]]), i32(1, 1), np.int64([9]), i32(3), NO_WEIGHTS
    )
    assert vector.tolist() == [0, 2, 0]
    places, dims = np.int64([[0, 1], [2, 0], [2, 1]]), np.int64([3, 2])
    weights = f32(1, 10, 100)
    matrix = run("SparseBincount", places, i32(1, 0, 1), dims, i32(2), weights)
    assert matrix.tolist() == [[0, 1], [0, 0], [10, 100]]
    with pytest.raises(InvalidGraphError, match="not one of 3 axes"):
        cube = np.int64([3, 2, 2])
        run("SparseBincount", np.int64([[0, 1, 0]]), i32([1]), cube, i32(2), NO_WEIGHTS)


@pytest.mark.parametrize(
    ("x", "size", "weights"),
    [(i32(-1, 0), 3, NO_WEIGHTS), (i32(0, 1), -1, NO_WEIGHTS), (i32(0, 1), 3, f32([1]))],
)
def test_invalid_bincount_is_refused(x: np.ndarray, size: int, weights: np.ndarray) -> None:
    with pytest.raises(InvalidGraphError, match=r"bins, or negative numbers"):
        run("Bincount", x, i32(size), weights)


def test_bincount_of_a_matrix() -> None:
    result = run("Bincount", i32([0, 1], [1, 1]), i32(3), np.zeros(0, np.float32))
    assert result.tolist() == [1, 3, 0]
