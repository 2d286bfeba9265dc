"""Bincount ops."""

from __future__ import annotations

import ml_dtypes
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


BF16 = ml_dtypes.bfloat16

SORTED = ("SegmentMax", "SegmentMin", "SegmentProd", "SegmentSum")
UNSORTED = tuple(f"Unsorted{op}" for op in SORTED)

OP_CASES += [
    *(case(op, [(4, 3), (4,)], [(-1, 3)], 12) for op in SORTED),
    case("SegmentSum", [None, (4,)], [None], None),
    refused("SegmentSum", [(), (4,)]),
    refused("SegmentSum", [(4, 3), (4, 1)]),
    unlike(case("SegmentMean", [(4, 3), (4,)], [(-1, 3)], None)),
    *(case(op, [(4, 2, 3), (4, 2), 5], [(5, 3)], 24) for op in UNSORTED),
    case("UnsortedSegmentSum", [(4, 3), (4,), ()], [(-1, 3)], 12),
    case("UnsortedSegmentSum", [None, (4,), 5], [None], None),
    unlike(case("UnsortedSegmentSum", [(4, 3), None, 5], [None], 12)),
    case("SegmentSum", [(4,), (4,)], [(-1,)], 4),
]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("Sum", [[-5, 6], [0, 0], [-4, 1]]),
        ("Prod", [[6, 8], [1, 1], [-4, 1]]),
        ("Max", [[-2, 4], [0, 0], [-4, 1]]),
        ("Min", [[-3, 2], [0, 0], [-4, 1]]),
        ("Mean", [[-2.5, 3], [0, 0], [-4, 1]]),
    ],
)
def test_segment_reductions_fill_gaps(op: str, expected: list) -> None:
    """Gaps are 0, or 1 for products, as in TensorFlow."""
    x = f32([-2, 2], [-3, 4], [-4, 1])
    assert run(f"Segment{op}", x, i32(0, 0, 2)).tolist() == expected
    assert run(f"Segment{op}", x[:0], i32([])).shape == (0, 2)


@pytest.mark.parametrize("ids", [(0, 0), (0, 2, 1), (-1, 0, 0)])
def test_invalid_segment_ids_are_refused(ids: tuple[int, ...]) -> None:
    with pytest.raises(InvalidGraphError, match=r"ascending|index -1 is not in"):
        run("SegmentSum", f32(1, 2, 3), i32(*ids))


@pytest.mark.parametrize(
    ("op", "kind", "expected"),
    [
        ("Sum", np.int32, [7, 0, 4]),
        ("Prod", np.int32, [10, 1, 4]),
        ("Max", np.int32, [5, -(2**31), 4]),
        ("Min", np.int32, [2, 2**31 - 1, 4]),
        ("Max", np.float32, [5, float(np.finfo(np.float32).min), 4]),
        ("Min", np.float32, [2, float(np.finfo(np.float32).max), 4]),
    ],
)
def test_unsorted_segment_reductions(op: str, kind: type, expected: list) -> None:
    x = np.array([2, 4, 9, 5], kind)
    assert run(f"UnsortedSegment{op}", x, i32(0, 2, -1, 0), i32(3)).tolist() == expected


def test_unsorted_segment_ids_of_several_axes() -> None:
    x, ids = i32([[[1], [2]], [[3], [4]]]), i32([[0, 1], [1, 0]])
    assert run("UnsortedSegmentSum", x, ids, i32(2)).tolist() == [[5], [5]]
    with pytest.raises(InvalidGraphError, match="index 2 is not in"):
        run("UnsortedSegmentSum", i32(1, 2), i32(0, 2), i32(2))
    with pytest.raises(InvalidGraphError, match="segments of shape"):
        run("UnsortedSegmentSum", i32(1, 2), i32(0, 1, 0), i32(2))


@pytest.mark.parametrize(("op", "extreme"), [("Min", np.inf), ("Max", -np.inf)])
def test_segment_of_infinities_stays_infinite(op: str, extreme: float) -> None:
    """Without gaps, TensorFlow starts from the first row of a segment."""
    x = f32(extreme, 1, extreme, extreme)
    first = x[:2].min() if op == "Min" else x[:2].max()
    assert run(f"Segment{op}", x, i32(0, 0, 1, 1)).tolist() == [first, extreme]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("SegmentMax", [2, 0, 3]),
        ("SegmentMin", [-4, 0, 3]),
        ("UnsortedSegmentMax", [2, float(-ml_dtypes.finfo(BF16).max), 3]),
        ("UnsortedSegmentMin", [-4, float(ml_dtypes.finfo(BF16).max), 3]),
    ],
)
def test_extremes_of_bfloat16(op: str, expected: list[float]) -> None:
    x, ids = np.array([2, -4, 3], BF16), i32(0, 0, 2)
    out = run(op, x, ids) if op.startswith("S") else run(op, x, ids, np.int32(3))
    assert out.dtype == BF16
    assert out.tolist() == expected


test_shapes_and_costs = case_tests(OP_CASES)
