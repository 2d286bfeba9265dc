"""Broadcasting."""

from __future__ import annotations

from tests.ops.cases import Partly, case, case_tests, refused

OP_CASES = [
    case("BroadcastTo", [(3,), [2, 3]], [(2, 3)]),
    case("BroadcastTo", [(3,), Partly((-1, 3))], [(-1, 3)]),
    case("BroadcastArgs", [(2,), (3,)], [(3,)]),
    case("BroadcastArgs", [(4,), (3,)], [(4,)]),
    case("BroadcastArgs", [(4,), (-1,)], [(-1,)]),
    refused("BroadcastArgs", [(4,), (1, 3)]),
    case("BroadcastGradientArgs", [(4,), (3,)], [(-1,), (-1,)]),
    case("BroadcastArgs", [(0,), (3,)], [(3,)]),
]

test_shapes_and_costs = case_tests(OP_CASES)
