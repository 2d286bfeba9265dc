"""Shapes and costs of pooling with places."""

from __future__ import annotations

import pytest

from tests.ops.cases import CostCase, OpCase, cost, shapes

TWO = {"ksize": (1, 3, 2, 1), "strides": (1, 2, 3, 1), "padding": "VALID"}

SHAPES = [
    shapes("MaxPoolWithArgmax", [(4, 9, 8, 3)], [(4, 4, 3, 3)] * 2, **TWO),
    shapes("MaxPoolWithArgmax", [(4, -1, 8, 3)], [(4, -1, 3, 3)] * 2, **TWO),
    shapes("MaxPoolWithArgmax", [(9, 8, 3)], None, **TWO),
]

COSTS = [cost("MaxPoolWithArgmax", [(4, 9, 8, 3)], [(4, 4, 3, 3)] * 2, 6 * 144, **TWO)]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: OpCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()
