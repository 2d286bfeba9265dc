"""Shapes and costs of sparse segment ops."""

from __future__ import annotations

from tests.ops.cases import case, case_tests, refused

OP_CASES = [
    case("SparseSegmentSum", [(7, 3), (4,), (4,)], [(-1, 3)], 12),
    case("SparseSegmentSumWithNumSegments", [(7, 3), (4,), (4,), 5], [(5, 3)], 12),
    case("SparseSegmentSumWithNumSegments", [(7, 3), (4,), (4,), ()], [(-1, 3)], 12),
    case("SparseSegmentSum", [(0, 3), (4,), (4,)], [(-1, 3)], 0),
    case("SparseSegmentSum", [None, (4,), (4,)], [None], None),
    refused("SparseSegmentSum", [(), (4,), (4,)]),
    case("SparseSegmentMean", [(7, 3), (4,), (4,)], [(-1, 3)], None),
    case("SparseSegmentSqrtN", [(7, 3), (4,), (4,)], [(-1, 3)], None),
    case("SparseSegmentMeanWithNumSegments", [(7, 3), (4,), (4,), 5], [(5, 3)], 27),
    case("SparseSegmentSqrtNWithNumSegments", [(7, 3), (4,), (4,), 5], [(5, 3)], 27),
    case("SparseSegmentSum", [(7,), (4,), (4,)], [(-1,)], 4),
]

test_shapes_and_costs = case_tests(OP_CASES)
