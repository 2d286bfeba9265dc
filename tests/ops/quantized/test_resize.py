"""Shapes and costs of resizing quantized images."""

from __future__ import annotations

from tests.ops.cases import case_tests, cost, shapes

RESIZE = "QuantizedResizeBilinear"

SHAPES = [
    shapes(RESIZE, [(2, 4, 5, 3), [7, 8], (), ()], [(2, 7, 8, 3), (), ()]),
    shapes(RESIZE, [(4, 5, 3), [7, 8], (), ()], None),
]

COSTS = [cost(RESIZE, [(1, 4, 5, 3), (2,), (), ()], [(1, 7, 8, 3), (), ()], 9 * 168)]

test_shapes_and_costs = case_tests(SHAPES, COSTS)
