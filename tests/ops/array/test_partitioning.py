"""DynamicPartition and DynamicStitch."""

from __future__ import annotations

from tests.ops.cases import case, case_tests, refused

OP_CASES = [
    case("DynamicPartition", [(4, 5, 6), (4, 5)], [(-1, 6)] * 3, num_partitions=3),
    case("DynamicPartition", [(4, -1), (4,)], [(-1, -1)], num_partitions=1),
    case("DynamicPartition", [None, (4,)], [None] * 2, num_partitions=2),
    case("DynamicPartition", [(4,), None], [None] * 2, num_partitions=2),
    case("DynamicStitch", [[0, 5], [2], (2, 7), (1, 7)], [(6, 7)]),
    case("DynamicStitch", [[0, 5], (1,), (2, 7), (1, -1)], [(-1, 7)]),
    case("DynamicStitch", [(2,), None, (2, -1), (1, 7)], [(-1, -1)]),
    case("DynamicStitch", [None, None, (2, 7), (1, 7)], [None]),
    case("DynamicStitch", [[], [], (0, 7), (0, 7)], [(0, 7)]),
    refused("DynamicStitch", [(2,), (1,), (2, 7), (1, 8)]),
    case("ParallelDynamicStitch", [[[0, 1]], [2], (1, 2, 7), (1, 7)], [(3, 7)]),
]

test_shapes_and_costs = case_tests(OP_CASES)
