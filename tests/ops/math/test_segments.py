"""Slices combined by segment."""

from __future__ import annotations

import pytest

from tests.ops.cases import OpCase, case, refused, unlike

SORTED = ("SegmentMax", "SegmentMin", "SegmentProd", "SegmentSum")
UNSORTED = tuple(f"Unsorted{op}" for op in SORTED)

OP_CASES = [
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


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
