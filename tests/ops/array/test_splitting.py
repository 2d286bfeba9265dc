"""Split, SplitV, and Unpack."""

from __future__ import annotations

from tests.ops.cases import case, case_tests, refused, unlike

OP_CASES = [
    case("Split", [1, (4, 6)], [(4, 2)] * 3, num_split=3),
    case("Split", [-2, (4, 6)], [(2, 6)] * 2, num_split=2),
    case("Split", [0, (-1, 6)], [(-1, 6)] * 2, num_split=2),
    case("Split", [(), (4, 6)], [(-1, -1)] * 2, num_split=2),
    case("Split", [0, None], [None] * 2, num_split=2),
    refused("Split", [1, (4, 5)], num_split=2),
    refused("Split", [2, (4, 6)], num_split=2),
    case("SplitV", [(4, 6), [1, 5], 1], [(4, 1), (4, 5)], num_split=2),
    case("SplitV", [(4, 6), [1, -1], 1], [(4, 1), (4, 5)], num_split=2),
    case("SplitV", [(4, -1), [1, -1], 1], [(4, 1), (4, -1)], num_split=2),
    case("SplitV", [(4, 6), (2,), 1], [(4, -1), (4, -1)], num_split=2),
    unlike(case("SplitV", [(4, 6), (1,), 1], [(4, 6)], num_split=1)),
    unlike(case("SplitV", [(4, 6), [1, 5], ()], [(-1, -1), (-1, -1)], num_split=2)),
    case("SplitV", [None, [1, 5], 1], [None, None], num_split=2),
    refused("SplitV", [(4, 6), [1, 5], 2], num_split=2),
    case("Unpack", [(4, 6)], [(6,)] * 4, num=4),
    case("Unpack", [(4, -1)], [(4,)] * 2, num=2, axis=-1),
    case("Unpack", [None], [None] * 2, num=2),
    refused("Unpack", [(4, 6)], num=3),
    refused("Unpack", [(4, 6)], num=4, axis=2),
    case("SplitV", [(4, 6), [0, 6], 1], [(4, 0), (4, 6)], num_split=2),
    case("SplitV", [(4, 0), [0, -1], 1], [(4, 0), (4, 0)], num_split=2),
    case("SplitV", [(4, 6), [1, 0, -1], 1], [(4, 1), (4, 0), (4, 5)], num_split=3),
]

test_shapes_and_costs = case_tests(OP_CASES)
