"""Selection by a condition."""

from __future__ import annotations

from tests.ops.cases import case, case_tests, refused

OP_CASES = [
    case("Select", [(2, 3), (2, -1), (-1, 3)], [(2, 3)]),
    case("Select", [(2,), (2, 3), (2, 3)], [(2, 3)]),
    case("Select", [(), (2, 3), None], [(2, 3)]),
    case("Select", [None, None, None], [None]),
    case("Select", [(2, 3), (2, -1), None], [(2, 3)]),
    refused("Select", [(), (2, 3), (2, 4)]),
    refused("Select", [(2, 4), (2, 3), (2, 3)]),
    case("RefSelect", [(), (2, 3), (2, 3)], [(2, 3)]),
    case("RefSelect", [(), (2, 3), (2, 4)], [None]),
    case("RefSelect", [(), (2, -1), (2, -1)], [None]),
    case("SelectV2", [(2, 1, 1), (3, 1), (4,)], [(2, 3, 4)]),
    case("SelectV2", [(), (3, 1), (1, 4)], [(3, 4)]),
    case("SelectV2", [None, (3, 1), (4,)], [None]),
    refused("SelectV2", [(2,), (3,), ()]),
    case("Where", [(4, 5, 6)], [(-1, 3)]),
    case("Where", [None], [(-1, -1)]),
]

test_shapes_and_costs = case_tests(OP_CASES)
