"""Special functions."""

from __future__ import annotations

import pytest

from tests.ops.cases import OpCase, case, refused

COUNTED = ("Digamma", "Erf", "Erfc", "Erfinv", "Lgamma", "Ndtri")
PAIRS = ("Igamma", "Igammac", "NextAfter", "Polygamma", "Zeta")

OP_CASES = [
    *(case(op, [(2, 3)], [(2, 3)], 6) for op in COUNTED),
    *(case(op, [(2, 3)], [(2, 3)]) for op in ("BesselI0", "BesselI0e", "BesselI1", "BesselI1e")),
    case("CumulativeLogsumexp", [(2, 3), 0], [(2, 3)]),
    *(case(op, [(2, 1), (3,)], [(2, 3)]) for op in PAIRS),
    case("Betainc", [(2, 3), (), (-1, 3)], [(2, 3)]),
    case("Betainc", [(), (), ()], [()]),
    refused("Betainc", [(2, 3), (), (3,)]),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
