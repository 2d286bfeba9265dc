"""Shapes and costs of transposed convolutions."""

from __future__ import annotations

from tests.ops.cases import case_tests, cost, shapes, unlike

TWO = {"strides": (1, 2, 2, 1), "padding": "SAME"}
CUBE = {"strides": (1, 2, 2, 2, 1), "padding": "SAME"}
CONV2D, CONV3D = "Conv2DBackpropInput", "Conv3DBackpropInputV2"
DEPTHWISE = "DepthwiseConv2dNativeBackpropInput"

SHAPES = [
    shapes(CONV2D, [[4, 9, 8, 3], (3, 2, 3, 8), (4, 5, 4, 8)], [(4, 9, 8, 3)], **TWO),
    # The newest release infers the batch size, 1.15 does not, and folding follows 1.15.
    unlike(shapes(CONV2D, [(4,), (3, 2, 3, 8), (4, 5, 4, 8)], [(-1, -1, -1, -1)], **TWO)),
    shapes(CONV2D, [[4, 9, 8, 3, 1], (3, 2, 3, 8), (4, 5, 4, 8)], None, **TWO),
    shapes(CONV3D, [[1, 9, 8, 7, 3], (3, 2, 1, 3, 5), (1, 5, 4, 4, 5)], [(1, 9, 8, 7, 3)], **CUBE),
    shapes(CONV3D, [[1, 9, 8, 3], (3, 2, 1, 3, 5), (1, 5, 4, 4, 5)], None, **CUBE),
    shapes(DEPTHWISE, [[4, 9, 8, 3], (3, 2, 3, 2), (4, 5, 4, 6)], [(4, 9, 8, 3)], **TWO),
    shapes(DEPTHWISE, [[4, 9, 8], (3, 2, 3, 2), (4, 5, 4, 6)], None, **TWO),
]

COSTS = [
    # each of 640 elements times 3 x 2 x 3 factors
    cost(CONV2D, [(4,), (3, 2, 3, 8), (4, 5, 4, 8)], [(4, 9, 8, 3)], 2 * 640 * 18),
    cost(CONV3D, [(5,), (3, 2, 1, 3, 5), (1, 5, 4, 4, 5)], [(1, 9, 8, 7, 3)], 2 * 400 * 18),
    # each of 480 elements times 3 x 2 factors
    cost(DEPTHWISE, [(4,), (3, 2, 3, 2), (4, 5, 4, 6)], [(4, 9, 8, 3)], 2 * 480 * 6),
]

test_shapes_and_costs = case_tests(SHAPES, COSTS)
