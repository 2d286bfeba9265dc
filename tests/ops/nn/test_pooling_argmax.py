"""Shapes and costs of MaxPoolWithArgmax."""

from __future__ import annotations

from tests.ops.cases import case_tests, cost, shapes

TWO = {"ksize": (1, 3, 2, 1), "strides": (1, 2, 3, 1), "padding": "VALID"}

SHAPES = [
    shapes("MaxPoolWithArgmax", [(4, 9, 8, 3)], [(4, 4, 3, 3)] * 2, **TWO),
    shapes("MaxPoolWithArgmax", [(4, -1, 8, 3)], [(4, -1, 3, 3)] * 2, **TWO),
    shapes("MaxPoolWithArgmax", [(9, 8, 3)], None, **TWO),
]

COSTS = [cost("MaxPoolWithArgmax", [(4, 9, 8, 3)], [(4, 4, 3, 3)] * 2, 6 * 144, **TWO)]

test_shapes_and_costs = case_tests(SHAPES, COSTS)
