"""Shapes and costs of convolutions."""

from __future__ import annotations

from tests.ops.cases import case_tests, cost, shapes, unlike

ONE = {"strides": (1, 1, 1, 1), "padding": "SAME"}
TWO = {"strides": (1, 2, 2, 1), "padding": "SAME"}
VALID = {"strides": (1, 2, 3, 1), "padding": "VALID"}
FIRST = {"strides": (1, 1, 2, 3), "padding": "VALID", "data_format": "NCHW"}
DILATED = {"strides": (1, 1, 1, 1), "padding": "VALID", "dilations": (1, 2, 3, 1)}
EXPLICIT = {**VALID, "padding": "EXPLICIT", "explicit_paddings": (0, 0, 1, 2, 3, 0, 0, 0)}
CUBE = {"strides": (1, 2, 1, 3, 1), "padding": "VALID"}
CUBE_FIRST = {"strides": (1, 1, 2, 1, 3), "padding": "SAME", "data_format": "NCDHW"}
BANK = (3, 2, 3, 8)

SHAPES = [
    shapes("Conv2D", [(4, 9, 8, 3), BANK], [(4, 9, 8, 8)], **ONE),
    shapes("Conv2D", [(-1, 9, 8, 3), BANK], [(-1, 5, 4, 8)], **TWO),
    # (9 - 3) / 2 + 1 rows, (8 - 2) / 3 + 1 columns
    shapes("Conv2D", [(4, 9, 8, 3), BANK], [(4, 4, 3, 8)], **VALID),
    shapes("Conv2D", [(4, 10, 10, 3), BANK], [(4, 4, 3, 8)], **VALID),
    shapes("Conv2D", [(4, 3, 9, 8), BANK], [(4, 8, 4, 3)], **FIRST),
    # windows of 5 rows and 4 columns
    shapes("Conv2D", [(4, 9, 8, 3), BANK], [(4, 5, 5, 8)], **DILATED),
    # 9 + 3 rows, 8 + 3 columns
    shapes("Conv2D", [(4, 9, 8, 3), BANK], [(4, 5, 4, 8)], **EXPLICIT),
    shapes("Conv2D", [(4, -1, 8, 3), BANK], [(4, -1, 4, 8)], **TWO),
    shapes("Conv2D", [(4, 9, 8, 3), (-1, 2, 3, 8)], [(4, 5, 4, 8)], **TWO),
    shapes("Conv2D", [(4, 9, 8, 3), (-1, 2, 3, 8)], [(4, -1, 3, 8)], **VALID),
    shapes("Conv2D", [(4, 9, 8, -1), (3, 2, -1, -1)], [(4, 4, 3, -1)], **VALID),
    shapes("Conv2D", [None, BANK], [(-1, -1, -1, 8)], **VALID),
    shapes("Conv2D", [(4, 9, 8, 3), None], [(4, -1, -1, -1)], **VALID),
    # two groups of filters
    shapes("Conv2D", [(4, 9, 8, 6), BANK], [(4, 9, 8, 8)], **ONE),
    shapes("Conv2D", [(4, 9, 8, 4), BANK], None, **ONE),
    shapes("Conv2D", [(4, 9, 8, 1), BANK], None, **ONE),
    shapes("Conv2D", [(4, 0, 8, 3), BANK], [(4, 0, 4, 8)], **TWO),
    shapes("Conv2D", [(4, 9, 8, 3), BANK], None, **{**EXPLICIT, "explicit_paddings": (0, 0)}),
    shapes("Conv2D", [(9, 8, 3), BANK], None, **ONE),
    shapes("Conv2D", [(4, 9, 8, 3), (3, 2, 3)], None, **ONE),
    shapes("Conv2D", [(4, 3, 2, 3), BANK], [(4, 1, 1, 8)], **VALID),
    shapes("Conv2D", [(4, 2, 2, 3), BANK], None, **VALID),
    shapes("Conv2D", [(4, 3, 1, 3), BANK], None, **VALID),
    shapes("Conv2D", [(4, 9, 8, 3), BANK], None, strides=(1, 1, 1), padding="SAME"),
    shapes("Conv2D", [(4, 9, 8, 3), BANK], None, **{**ONE, "dilations": (1, 1, 1)}),
    # TensorFlow refuses dilated filters without rows; here the number of positions is unknown.
    unlike(shapes("Conv2D", [(4, 9, 8, 3), (0, 2, 3, 8)], [(4, -1, 5, 8)], **DILATED)),
    shapes("Conv2D", [(4, 9, 8, 3), BANK], None, strides=(1, 0, 1, 1), padding="SAME"),
    shapes("Conv3D", [(2, 9, 8, 7, 3), (3, 2, 1, 3, 5)], [(2, 4, 7, 3, 5)], **CUBE),
    shapes("Conv3D", [(2, 3, 9, 8, 7), (3, 2, 1, 3, 5)], [(2, 5, 5, 8, 3)], **CUBE_FIRST),
    shapes("Conv3D", [(2, 9, 8, 3), (3, 2, 1, 3, 5)], None, **CUBE),
    shapes("Conv3D", [(2, 9, 8, 7, 3), (3, 2, 1, 4, 5)], None, **CUBE),
    shapes("DepthwiseConv2dNative", [(4, 9, 8, 3), (3, 2, 3, 2)], [(4, 5, 4, 6)], **TWO),
    shapes("DepthwiseConv2dNative", [(4, 9, 8, -1), (3, 2, 3, 2)], [(4, 5, 4, 6)], **TWO),
    shapes("DepthwiseConv2dNative", [(4, 9, 8, 3), (3, 2, -1, 2)], [(4, 5, 4, 6)], **TWO),
    shapes("DepthwiseConv2dNative", [(4, 9, 8, 3), (3, 2, 3, -1)], [(4, 5, 4, -1)], **TWO),
    shapes("DepthwiseConv2dNative", [(4, 3, 9, 8), (3, 2, 3, 2)], [(4, 6, 4, 3)], **FIRST),
    shapes("DepthwiseConv2dNative", [(4, 9, 8, 3), (3, 2, 4, 2)], None, **TWO),
    shapes("Conv2DBackpropFilter", [(4, 9, 8, 3), [3, 2, 3, 8], (4, 9, 8, 8)], [BANK], **ONE),
    shapes("Conv2DBackpropFilter", [(4, 9, 8, 3), (4,), (4, 9, 8, 8)], [(-1, -1, -1, -1)], **ONE),
    shapes("Conv2DBackpropFilter", [(4, 9, 8, 3), [3, 2, 3], (4, 9, 8, 8)], None, **ONE),
    shapes(
        "Conv3DBackpropFilterV2",
        [(2, 9, 8, 7, 3), [3, 2, 1, 3, 5], (2, 4, 7, 3, 5)],
        [(3, 2, 1, 3, 5)],
        **CUBE,
    ),
    shapes(
        "DepthwiseConv2dNativeBackpropFilter",
        [(4, 9, 8, 3), [3, 2, 3, 2], (4, 5, 4, 6)],
        [(3, 2, 3, 2)],
        **TWO,
    ),
]

COSTS = [
    # 2 operations for each of 3 x 2 x 3 factors
    cost("Conv2D", [(4, 9, 8, 3), BANK], [(4, 5, 4, 8)], 2 * 18 * 640, **TWO),
    cost("Conv2D", [(4, 9, 8, 3), None], [(4, 5, 4, 8)], None, **TWO),
    cost("Conv3D", [(1, 9, 8, 7, 3), (3, 2, 1, 3, 5)], [(1, 4, 7, 3, 5)], 2 * 18 * 420, **CUBE),
    cost("DepthwiseConv2dNative", [(1, 9, 8, 3), (3, 2, 3, 2)], [(1, 5, 4, 6)], 2 * 6 * 120),
]

test_shapes_and_costs = case_tests(SHAPES, COSTS)
