"""Shapes and costs of mel-frequency cepstral coefficients."""

from __future__ import annotations

import pytest

from tests.ops.cases import CostCase, OpCase, cost, shapes

SHAPES = [
    shapes("Mfcc", [(2, 98, 257), ()], [(2, 98, 13)]),
    shapes("Mfcc", [(-1, 98, 257), ()], [(-1, 98, 20)], dct_coefficient_count=20),
    shapes("Mfcc", [None, ()], [(-1, -1, 13)]),
    shapes("Mfcc", [(98, 257), ()], None),
]

COSTS = [
    # of 9 frequencies 5 each, 40 logarithms, and 13 sums of 40 products
    cost("Mfcc", [(2, 3, 9), ()], [(2, 3, 13)], 6 * (45 + 40 + 1040)),
    cost(
        "Mfcc",
        [(2, 3, 9), ()],
        [(2, 3, 4)],
        6 * (45 + 10 + 80),
        filterbank_channel_count=10,
        dct_coefficient_count=4,
    ),
]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: OpCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()
