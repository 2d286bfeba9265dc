"""Conversion of indices, axes, and permutations."""

from __future__ import annotations

from tests.ops.cases import case, case_tests, refused

OP_CASES = [
    case("UnravelIndex", [(), [2, 3]], [(2,)]),
    case("UnravelIndex", [(5,), [2, 3, 4]], [(3, 5)]),
    case("UnravelIndex", [(5, 2), (-1,)], [(-1, 10)]),
    case("UnravelIndex", [(-1,), (2,)], [(2, -1)]),
    case("UnravelIndex", [None, (2,)], [None]),
    refused("UnravelIndex", [(5,), (2, 2)]),
    case("DataFormatDimMap", [(3,)], [(3,)]),
    case("DataFormatVecPermute", [(4, 2)], [(4, 2)]),
]

test_shapes_and_costs = case_tests(OP_CASES)
