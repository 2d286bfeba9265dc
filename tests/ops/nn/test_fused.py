"""Shapes and costs of ops that stand for a chain of others."""

from __future__ import annotations

import pytest

from mobileprep.formats.dtypes import DType
from tests.ops.cases import CostCase, ShapeCase, cost, shapes

TWO = {"strides": (1, 2, 2, 1), "padding": "SAME"}
BIAS = {"num_args": 1, "fused_ops": ("BiasAdd", "Relu6")}
FLOATS = {"TArgs": (DType.FLOAT,)}
TURNED = {"transpose_a": True, "transpose_b": True}
IMAGE, BANK, DEPTHWISE = (4, 9, 8, 3), (3, 2, 3, 8), (3, 2, 3, 2)
VECTORS = [(8,)] * 4
# What the last output of a batch normalization reserves is not known.
NORM = [(4, 9, 8, 8), (8,), (8,), (8,), (8,), None]
BORDER = [[0, 0], [1, 2], [3, 0], [0, 0]]
PAD, RESIZE = "FusedPadConv2D", "FusedResizeAndPadConv2D"
MIRRORED = {"strides": (1, 2, 3, 1), "padding": "VALID", "mode": "REFLECT"}

SHAPES = [
    shapes("_FusedConv2D", [IMAGE, BANK, (8,)], [(4, 5, 4, 8)], **TWO, **BIAS, **FLOATS),
    shapes(
        "_FusedConv2D",
        [IMAGE, (8, 3, 3, 2), (8,)],
        [(4, 4, 4, 8)],
        **{**TWO, "padding": "VALID"},
        **BIAS,
        **FLOATS,
        filter_format="OIHW",
    ),
    shapes("_FusedConv2D", [(4, 9, 8, 4), BANK, (8,)], None, **TWO, **BIAS, **FLOATS),
    shapes("_FusedDepthwiseConv2dNative", [IMAGE, DEPTHWISE, (6,)], [(4, 5, 4, 6)], **TWO, **BIAS),
    shapes("_FusedMatMul", [(2, 3), (3, 5), (5,)], [(2, 5)], **BIAS),
    shapes("_FusedMatMul", [(3, 2), (5, 3), (5,)], [(2, 5)], **BIAS, **TURNED),
    shapes("_FusedMatMul", [(2, 3), (4, 5), (5,)], None, **BIAS),
    shapes("_FusedBatchNormEx", [(4, 9, 8, 8), *VECTORS], NORM, T=DType.HALF, U=DType.FLOAT),
    shapes("_FusedBatchNormEx", [(4, 9, 8, -1), *VECTORS], NORM, T=DType.HALF, U=DType.FLOAT),
    # 9 + 3 rows, 8 + 3 columns
    shapes(PAD, [IMAGE, BORDER, BANK], [(4, 5, 4, 8)], **MIRRORED),
    shapes(PAD, [IMAGE, (4, 2), BANK], [(-1, -1, -1, 8)], **MIRRORED),
    shapes(PAD, [(4, 9, -1, 3), BORDER, BANK], [(4, 5, -1, 8)], **MIRRORED),
    shapes(PAD, [(9, 8, 3), BORDER, BANK], None, **MIRRORED),
    # 5 + 3 rows, 6 + 3 columns
    shapes(RESIZE, [IMAGE, [5, 6], BORDER, BANK], [(4, 3, 3, 8)], **MIRRORED),
    shapes(RESIZE, [IMAGE, (2,), BORDER, BANK], [(4, -1, -1, 8)], **MIRRORED),
    shapes(RESIZE, [IMAGE, [5, 6], BORDER, (2, 3, 8)], None, **MIRRORED),
]

COSTS = [
    # 2 x 3 x 2 x 3 operations for each of 640 elements, then 1 for the bias and 2 for Relu6
    cost("_FusedConv2D", [IMAGE, BANK, (8,)], [(4, 5, 4, 8)], 640 * (36 + 3), **BIAS),
    cost(
        "_FusedDepthwiseConv2dNative",
        [IMAGE, DEPTHWISE, (6,)],
        [(4, 5, 4, 6)],
        480 * (12 + 3),
        **BIAS,
    ),
    cost("_FusedMatMul", [(2, 3), (3, 5), (5,)], [(2, 5)], 10 * (6 + 3), **BIAS),
    cost("_FusedMatMul", [(4, 2), (5, 4), (5,)], [(2, 5)], 10 * (8 + 3), **BIAS, **TURNED),
    cost("_FusedBatchNormEx", [(4, 9, 8, 8)], NORM, 2304 * 2, is_training=False),
    cost(PAD, [IMAGE, (4, 2), BANK], [(4, 5, 4, 8)], 640 * 36),
    cost(RESIZE, [IMAGE, (2,), (4, 2), BANK], [(4, 3, 3, 8)], 288 * 36),
]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: ShapeCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()
