"""Shapes and costs of quantized activations."""

from __future__ import annotations

from tests.ops.cases import case_tests, cost, shapes

SHAPES = [
    shapes("QuantizedRelu", [(2, -1), (), ()], [(2, -1), (), ()]),
    shapes("QuantizedRelu6", [(2, -1), (), ()], [(2, -1), (), ()]),
    shapes("QuantizedReluX", [None, (), (), ()], [None, (), ()]),
]

COSTS = [
    cost("QuantizedRelu", [(2, 3), (), ()], [(2, 3), (), ()], 6),
    cost("QuantizedRelu6", [(2, 3), (), ()], [(2, 3), (), ()], 12),
]

test_shapes_and_costs = case_tests(SHAPES, COSTS)
