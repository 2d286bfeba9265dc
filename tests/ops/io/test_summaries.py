"""Summaries of training."""

from __future__ import annotations

import pytest

from tests.ops.cases import OpCase, case

OP_CASES = [
    case("AudioSummaryV2", [(), (2, 3), ()], [()]),
    case("HistogramSummary", [(), (2, 3)], [()]),
    case("ImageSummary", [(), (1, 2, 3, 1)], [()]),
    case("MergeSummary", [(), ()], [()]),
    case("ScalarSummary", [(), ()], [()]),
    case("Timestamp", [], [()]),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
