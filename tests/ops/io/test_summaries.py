"""Summary ops."""

from __future__ import annotations

from tests.ops.cases import case, case_tests

OP_CASES = [
    case("AudioSummaryV2", [(), (2, 3), ()], [()]),
    case("HistogramSummary", [(), (2, 3)], [()]),
    case("ImageSummary", [(), (1, 2, 3, 1)], [()]),
    case("MergeSummary", [(), ()], [()]),
    case("ScalarSummary", [(), ()], [()]),
    case("Timestamp", [], [()]),
]

test_shapes_and_costs = case_tests(OP_CASES)
