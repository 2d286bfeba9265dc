"""ExtractImagePatches."""

from __future__ import annotations

import numpy as np

from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import run

ONE = {"ksizes": (1, 3, 2, 1), "strides": (1, 1, 1, 1), "rates": (1, 1, 1, 1), "padding": "VALID"}
WIDE = {**ONE, "strides": (1, 2, 3, 1), "rates": (1, 2, 3, 1)}
SAME = {**WIDE, "padding": "SAME"}
PATCHES = "ExtractImagePatches"

SHAPES = [
    shapes(PATCHES, [(4, 9, 8, 3)], [(4, 7, 7, 18)], **ONE),
    # windows of 5 rows and 4 columns, every 2 rows and 3 columns
    shapes(PATCHES, [(-1, 10, 8, 3)], [(-1, 3, 2, 18)], **WIDE),
    shapes(PATCHES, [(4, 9, 8, -1)], [(4, 5, 3, -1)], **SAME),
    shapes(PATCHES, [(4, -1, 8, 3)], [(4, -1, -1, 18)], **ONE),
    shapes(PATCHES, [(4, 9, -1, 3)], [(4, -1, -1, 18)], **ONE),
    # The output is empty for a window that is too large by less than two strides.
    shapes(PATCHES, [(4, 2, 8, 3)], [(4, 0, 7, 18)], **ONE),
    shapes(PATCHES, [(4, 1, 8, 3)], None, **ONE),
    shapes(PATCHES, [(9, 8, 3)], None, **ONE),
    shapes(PATCHES, [(4, 9, 8, 3)], None, **{**ONE, "ksizes": (1, 3, 2)}),
    shapes(PATCHES, [(4, 9, 8, 3)], None, **{**ONE, "strides": (1, 1, 1)}),
    shapes(PATCHES, [(4, 9, 8, 3)], None, **{**ONE, "rates": (1, 1, 1)}),
]

COSTS = [cost(PATCHES, [(4, 9, 8, 3)], [(4, 7, 7, 18)], 0, **ONE)]

test_shapes_and_costs = case_tests(SHAPES, COSTS)


def test_patches_of_empty_image() -> None:
    image, size = np.zeros((1, 3, 0, 4), np.float32), [1, 2, 1, 1]
    options = {"ksizes": size, "strides": size, "rates": [1, 1, 1, 1], "padding": "SAME"}
    assert run("ExtractImagePatches", image, **options).shape == (1, 2, 0, 8)
