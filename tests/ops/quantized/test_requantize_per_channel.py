"""Shapes and costs of requantization with a range for each channel."""

from __future__ import annotations

from tests.ops.cases import case_tests, cost, shapes

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

test_shapes_and_costs = case_tests(SHAPES, COSTS)
