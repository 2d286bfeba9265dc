"""Shapes and costs of quantized activations."""

from __future__ import annotations

import pytest

from tests.ops.cases import CostCase, OpCase, cost, shapes

SHAPES = [
    shapes("QuantizedRelu", [(2, -1), (), ()], [(2, -1), (), ()]),
    shapes("QuantizedRelu6", [(2, -1), (), ()], [(2, -1), (), ()]),
    shapes("QuantizedReluX", [None, (), (), ()], [None, (), ()]),
]

COSTS = [
    cost("QuantizedRelu", [(2, 3), (), ()], [(2, 3), (), ()], 6),
    cost("QuantizedRelu6", [(2, 3), (), ()], [(2, 3), (), ()], 12),
]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: OpCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()
