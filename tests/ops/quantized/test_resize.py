"""Shapes and costs of resizing quantized images."""

from __future__ import annotations

import pytest

from tests.ops.cases import CostCase, OpCase, cost, shapes

RESIZE = "QuantizedResizeBilinear"

SHAPES = [
    shapes(RESIZE, [(2, 4, 5, 3), [7, 8], (), ()], [(2, 7, 8, 3), (), ()]),
    shapes(RESIZE, [(4, 5, 3), [7, 8], (), ()], None),
]

COSTS = [cost(RESIZE, [(1, 4, 5, 3), (2,), (), ()], [(1, 7, 8, 3), (), ()], 9 * 168)]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: OpCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()
