"""Special functions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.ops.cases import case, case_tests, refused
from tests.ops.graphs import run

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

test_shapes_and_costs = case_tests(OP_CASES)


EULER = 0.5772156649015329


@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        # psi(1) = -gamma, psi(1/2) = -gamma - 2 ln 2, psi(n + 1) = psi(n) + 1 / n, and
        # psi(1 - x) - psi(x) = pi cot(pi x); no value where the gamma function has a pole
        ("Digamma", 1, -EULER),
        ("Digamma", 0.5, -EULER - 2 * math.log(2)),
        ("Digamma", 3, 1.5 - EULER),
        ("Digamma", -0.5, 2 - EULER - 2 * math.log(2)),
        ("Digamma", 20, sum(1 / k for k in range(1, 20)) - EULER),
        ("Digamma", 0, math.nan),
        ("Digamma", -2, math.nan),
        ("Lgamma", 0.5, math.log(math.pi) / 2),
        ("Lgamma", 5, math.log(24)),
        ("Lgamma", -0.5, math.log(2 * math.sqrt(math.pi))),
        ("Lgamma", -1, math.inf),
        ("Lgamma", -math.inf, math.inf),
        ("Lgamma", math.inf, math.inf),
        *(("Erf", x, math.erf(x)) for x in (-3, -0.4, 0, 0.4, 0.5, 1, 2.5)),
        *(("Erfc", x, math.erfc(x)) for x in (-3, -0.4, 0, 0.4, 0.5, 1, 5)),
        *(("Erfinv", math.erf(x), x) for x in (-2.5, -0.3, 0, 0.3, 1, 2)),
        ("Erfinv", 1, math.inf),
        ("Erfinv", -1, -math.inf),
        ("Erfinv", 1.5, math.nan),
        ("Ndtri", 0.5, 0),
        # the probability that a normal variable is below one standard deviation
        ("Ndtri", (1 + math.erf(1 / math.sqrt(2))) / 2, 1),
    ],
)
def test_special_functions(op: str, x: float, expected: float) -> None:
    result = run(op, np.array([x], np.float64))
    np.testing.assert_allclose(result, [expected], rtol=1e-11, atol=1e-14)
    assert run(op, np.array([x], np.float32)).dtype == np.float32
