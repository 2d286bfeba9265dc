"""Chosen rows combined by segment."""

from __future__ import annotations

import pytest

from tests.ops.cases import OpCase, case, refused

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


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
