"""Indices, axes and permutations turned into others."""

from __future__ import annotations

import pytest

from tests.ops.cases import OpCase, case, refused

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


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
