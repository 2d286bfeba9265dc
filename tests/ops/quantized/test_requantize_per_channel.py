"""Shapes and costs of requantization with a range for each channel."""

from __future__ import annotations

import pytest

from tests.ops.cases import CostCase, OpCase, cost, shapes

RANGE, REQUANTIZE = "RequantizationRangePerChannel", "RequantizePerChannel"
CLIP = {"clip_value_max": 6.0}

SHAPES = [
    shapes(RANGE, [(1, 2, 5, 3), (3,), (3,)], [(), ()], **CLIP),
    shapes(REQUANTIZE, [(1, 2, -1, 3), (3,), (3,), (), ()], [(1, 2, -1, 3), (), ()]),
]

COSTS = [
    cost(RANGE, [(1, 2, 5, 3), (3,), (3,)], [(), ()], 60),
    cost(REQUANTIZE, [(1, 2, 5, 3), (3,), (3,), (), ()], [(1, 2, 5, 3), (), ()], 90),
]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: OpCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()
