"""Shapes and costs of grey-scale dilation."""

from __future__ import annotations

from tests.ops.cases import case_tests, cost, shapes

ONE = {"strides": (1, 1, 1, 1), "rates": (1, 1, 1, 1), "padding": "VALID"}
WIDE = {"strides": (1, 2, 3, 1), "rates": (1, 2, 3, 1), "padding": "VALID"}
SAME = {**WIDE, "padding": "SAME"}

SHAPES = [
    shapes("Dilation2D", [(4, 9, 8, 3), (3, 2, 3)], [(4, 7, 7, 3)], **ONE),
    # windows of 5 rows and 4 columns, every 2 rows and 3 columns
    shapes("Dilation2D", [(-1, 10, 8, 3), (3, 2, 3)], [(-1, 3, 2, 3)], **WIDE),
    shapes("Dilation2D", [(4, 9, 8, 3), (3, 2, 3)], [(4, 5, 3, 3)], **SAME),
    shapes("Dilation2D", [(4, 9, 8, -1), (3, 2, 3)], [(4, 7, 7, 3)], **ONE),
    shapes("Dilation2D", [(4, 9, 8, 3), (3, 2, -1)], [(4, 7, 7, -1)], **ONE),
    # With an unknown size, both output sizes are unknown.
    shapes("Dilation2D", [(4, -1, 8, 3), (3, 2, 3)], [(4, -1, -1, 3)], **ONE),
    shapes("Dilation2D", [(4, 9, -1, 3), (3, 2, 3)], [(4, -1, -1, 3)], **ONE),
    shapes("Dilation2D", [(4, 9, 8, 3), (-1, 2, 3)], [(4, -1, -1, 3)], **SAME),
    shapes("Dilation2D", [(4, 9, 8, 3), (3, -1, -1)], [(4, -1, -1, -1)], **SAME),
    shapes("Dilation2D", [None, (3, 2, 3)], [(-1, -1, -1, 3)], **ONE),
    shapes("Dilation2D", [(4, 9, 8, 3), (3, 2, 4)], None, **ONE),
    shapes("Dilation2D", [(4, 9, 8, 3), (3, 2, 3, 1)], None, **ONE),
    shapes("Dilation2D", [(9, 8, 3), (3, 2, 3)], None, **ONE),
    shapes("Dilation2D", [(4, 9, 8, 3), (3, 2, 3)], None, **{**ONE, "strides": (1, 1, 1)}),
    shapes("Dilation2D", [(4, 9, 8, 3), (3, 2, 3)], None, **{**ONE, "rates": (1, 1, 1)}),
    shapes("Dilation2D", [(4, 3, 2, 3), (3, 2, 3)], [(4, 1, 1, 3)], **ONE),
    # The output is empty for a window that is too large by less than two strides.
    shapes("Dilation2D", [(4, 2, 8, 3), (3, 2, 3)], [(4, 0, 7, 3)], **ONE),
    shapes("Dilation2D", [(4, 1, 8, 3), (3, 2, 3)], None, **ONE),
    shapes("Dilation2D", [(4, 2, 8, 3), (3, 2, 3)], [(4, 0, 2, 3)], **WIDE),
    shapes("Dilation2D", [(4, 1, 8, 3), (3, 2, 3)], None, **WIDE),
    shapes("Dilation2D", [(4, 2, 8, 3), (3, 2, 3)], [(4, 1, 3, 3)], **SAME),
]

COSTS = [cost("Dilation2D", [(4, 9, 8, 3), (3, 2, 3)], [(4, 7, 7, 3)], 2 * 6 * 588, **ONE)]

test_shapes_and_costs = case_tests(SHAPES, COSTS)
