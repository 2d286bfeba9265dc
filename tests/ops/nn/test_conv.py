"""Shapes and costs of convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.node import Node
from mobileprep.ops.kernel import find_kernel
from tests.ops.cases import case_tests, cost, shapes, unlike
from tests.ops.graphs import run

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


CONV_TRANSPOSE_CUBE = {"strides": (1, 2, 2, 2, 1), "padding": "SAME"}
CONV2D, CONV3D = "Conv2DBackpropInput", "Conv3DBackpropInputV2"
DEPTHWISE = "DepthwiseConv2dNativeBackpropInput"

SHAPES += [
    shapes(CONV2D, [[4, 9, 8, 3], (3, 2, 3, 8), (4, 5, 4, 8)], [(4, 9, 8, 3)], **TWO),
    # The newest release infers the batch size, 1.15 does not, and folding follows 1.15.
    unlike(shapes(CONV2D, [(4,), (3, 2, 3, 8), (4, 5, 4, 8)], [(-1, -1, -1, -1)], **TWO)),
    shapes(CONV2D, [[4, 9, 8, 3, 1], (3, 2, 3, 8), (4, 5, 4, 8)], None, **TWO),
    shapes(
        CONV3D,
        [[1, 9, 8, 7, 3], (3, 2, 1, 3, 5), (1, 5, 4, 4, 5)],
        [(1, 9, 8, 7, 3)],
        **CONV_TRANSPOSE_CUBE,
    ),
    shapes(CONV3D, [[1, 9, 8, 3], (3, 2, 1, 3, 5), (1, 5, 4, 4, 5)], None, **CONV_TRANSPOSE_CUBE),
    shapes(DEPTHWISE, [[4, 9, 8, 3], (3, 2, 3, 2), (4, 5, 4, 6)], [(4, 9, 8, 3)], **TWO),
    shapes(DEPTHWISE, [[4, 9, 8], (3, 2, 3, 2), (4, 5, 4, 6)], None, **TWO),
]

COSTS += [
    # each of 640 elements times 3 x 2 x 3 factors
    cost(CONV2D, [(4,), (3, 2, 3, 8), (4, 5, 4, 8)], [(4, 9, 8, 3)], 2 * 640 * 18),
    cost(CONV3D, [(5,), (3, 2, 1, 3, 5), (1, 5, 4, 4, 5)], [(1, 9, 8, 7, 3)], 2 * 400 * 18),
    # each of 480 elements times 3 x 2 factors
    cost(DEPTHWISE, [(4,), (3, 2, 3, 2), (4, 5, 4, 6)], [(4, 9, 8, 3)], 2 * 480 * 6),
]


DILATION_ONE = {"strides": (1, 1, 1, 1), "rates": (1, 1, 1, 1), "padding": "VALID"}
WIDE = {"strides": (1, 2, 3, 1), "rates": (1, 2, 3, 1), "padding": "VALID"}
SAME = {**WIDE, "padding": "SAME"}

SHAPES += [
    shapes("Dilation2D", [(4, 9, 8, 3), (3, 2, 3)], [(4, 7, 7, 3)], **DILATION_ONE),
    # windows of 5 rows and 4 columns, every 2 rows and 3 columns
    shapes("Dilation2D", [(-1, 10, 8, 3), (3, 2, 3)], [(-1, 3, 2, 3)], **WIDE),
    shapes("Dilation2D", [(4, 9, 8, 3), (3, 2, 3)], [(4, 5, 3, 3)], **SAME),
    shapes("Dilation2D", [(4, 9, 8, -1), (3, 2, 3)], [(4, 7, 7, 3)], **DILATION_ONE),
    shapes("Dilation2D", [(4, 9, 8, 3), (3, 2, -1)], [(4, 7, 7, -1)], **DILATION_ONE),
    # With an unknown size, both output sizes are unknown.
    shapes("Dilation2D", [(4, -1, 8, 3), (3, 2, 3)], [(4, -1, -1, 3)], **DILATION_ONE),
    shapes("Dilation2D", [(4, 9, -1, 3), (3, 2, 3)], [(4, -1, -1, 3)], **DILATION_ONE),
    shapes("Dilation2D", [(4, 9, 8, 3), (-1, 2, 3)], [(4, -1, -1, 3)], **SAME),
    shapes("Dilation2D", [(4, 9, 8, 3), (3, -1, -1)], [(4, -1, -1, -1)], **SAME),
    shapes("Dilation2D", [None, (3, 2, 3)], [(-1, -1, -1, 3)], **DILATION_ONE),
    shapes("Dilation2D", [(4, 9, 8, 3), (3, 2, 4)], None, **DILATION_ONE),
    shapes("Dilation2D", [(4, 9, 8, 3), (3, 2, 3, 1)], None, **DILATION_ONE),
    shapes("Dilation2D", [(9, 8, 3), (3, 2, 3)], None, **DILATION_ONE),
    shapes("Dilation2D", [(4, 9, 8, 3), (3, 2, 3)], None, **{**DILATION_ONE, "strides": (1, 1, 1)}),
    shapes("Dilation2D", [(4, 9, 8, 3), (3, 2, 3)], None, **{**DILATION_ONE, "rates": (1, 1, 1)}),
    shapes("Dilation2D", [(4, 3, 2, 3), (3, 2, 3)], [(4, 1, 1, 3)], **DILATION_ONE),
    # The output is empty for a window that is too large by less than two strides.
    shapes("Dilation2D", [(4, 2, 8, 3), (3, 2, 3)], [(4, 0, 7, 3)], **DILATION_ONE),
    shapes("Dilation2D", [(4, 1, 8, 3), (3, 2, 3)], None, **DILATION_ONE),
    shapes("Dilation2D", [(4, 2, 8, 3), (3, 2, 3)], [(4, 0, 2, 3)], **WIDE),
    shapes("Dilation2D", [(4, 1, 8, 3), (3, 2, 3)], None, **WIDE),
    shapes("Dilation2D", [(4, 2, 8, 3), (3, 2, 3)], [(4, 1, 3, 3)], **SAME),
]

COSTS += [
    cost("Dilation2D", [(4, 9, 8, 3), (3, 2, 3)], [(4, 7, 7, 3)], 2 * 6 * 588, **DILATION_ONE)
]


BIAS = {"num_args": 1, "fused_ops": ("BiasAdd", "Relu6")}
FLOATS = {"TArgs": (DType.FLOAT,)}
TURNED = {"transpose_a": True, "transpose_b": True}
IMAGE, FUSED_BANK, FUSED_DEPTHWISE = (4, 9, 8, 3), (3, 2, 3, 8), (3, 2, 3, 2)
CHUNKS = {"filter_format": "OIHW_VECT_I"}
VECTORS = [(8,)] * 4
# The shape of the last output, the reserved space, is unknown.
NORM = [(4, 9, 8, 8), (8,), (8,), (8,), (8,), None]
BORDER = [[0, 0], [1, 2], [3, 0], [0, 0]]
PAD, RESIZE = "FusedPadConv2D", "FusedResizeAndPadConv2D"
MIRRORED = {"strides": (1, 2, 3, 1), "padding": "VALID", "mode": "REFLECT"}

SHAPES += [
    shapes("_FusedConv2D", [IMAGE, FUSED_BANK, (8,)], [(4, 5, 4, 8)], **TWO, **BIAS, **FLOATS),
    shapes(
        "_FusedConv2D",
        [IMAGE, (8, 3, 3, 2), (8,)],
        [(4, 4, 4, 8)],
        **{**TWO, "padding": "VALID"},
        **BIAS,
        **FLOATS,
        filter_format="OIHW",
    ),
    shapes("_FusedConv2D", [IMAGE, None, (8,)], [(4, 5, 4, -1)], **CHUNKS, **TWO, **BIAS, **FLOATS),
    shapes("_FusedConv2D", [(4, 9, 8, 4), FUSED_BANK, (8,)], None, **TWO, **BIAS, **FLOATS),
    shapes(
        "_FusedDepthwiseConv2dNative", [IMAGE, FUSED_DEPTHWISE, (6,)], [(4, 5, 4, 6)], **TWO, **BIAS
    ),
    shapes("_FusedMatMul", [(2, 3), (3, 5), (5,)], [(2, 5)], **BIAS),
    shapes("_FusedMatMul", [(3, 2), (5, 3), (5,)], [(2, 5)], **BIAS, **TURNED),
    shapes("_FusedMatMul", [(2, 3), (4, 5), (5,)], None, **BIAS),
    shapes("_FusedBatchNormEx", [(4, 9, 8, 8), *VECTORS], NORM, T=DType.HALF, U=DType.FLOAT),
    shapes("_FusedBatchNormEx", [(4, 9, 8, -1), *VECTORS], NORM, T=DType.HALF, U=DType.FLOAT),
    # 9 + 3 rows, 8 + 3 columns
    shapes(PAD, [IMAGE, BORDER, FUSED_BANK], [(4, 5, 4, 8)], **MIRRORED),
    shapes(PAD, [IMAGE, (4, 2), FUSED_BANK], [(-1, -1, -1, 8)], **MIRRORED),
    shapes(PAD, [(4, 9, -1, 3), BORDER, FUSED_BANK], [(4, 5, -1, 8)], **MIRRORED),
    shapes(PAD, [(9, 8, 3), BORDER, FUSED_BANK], None, **MIRRORED),
    # 5 + 3 rows, 6 + 3 columns
    shapes(RESIZE, [IMAGE, [5, 6], BORDER, FUSED_BANK], [(4, 3, 3, 8)], **MIRRORED),
    shapes(RESIZE, [IMAGE, (2,), BORDER, FUSED_BANK], [(4, -1, -1, 8)], **MIRRORED),
    shapes(RESIZE, [IMAGE, [5, 6], BORDER, (2, 3, 8)], None, **MIRRORED),
]

COSTS += [
    # 2 x 3 x 2 x 3 operations for each of 640 elements, then 1 for the bias and 2 for Relu6
    cost("_FusedConv2D", [IMAGE, FUSED_BANK, (8,)], [(4, 5, 4, 8)], 640 * (36 + 3), **BIAS),
    # The same filters with outputs and inputs first: 640 elements of 2 x 3 x 2 x 3 operations.
    cost("_FusedConv2D", [IMAGE, (8, 3, 3, 2)], [(4, 5, 4, 8)], 640 * 36, filter_format="OIHW"),
    cost("_FusedConv2D", [IMAGE, (8, 1, 3, 2, 4)], [(4, 5, 4, 8)], None, **CHUNKS),
    cost(
        "_FusedDepthwiseConv2dNative",
        [IMAGE, FUSED_DEPTHWISE, (6,)],
        [(4, 5, 4, 6)],
        480 * (12 + 3),
        **BIAS,
    ),
    cost("_FusedMatMul", [(2, 3), (3, 5), (5,)], [(2, 5)], 10 * (6 + 3), **BIAS),
    cost("_FusedMatMul", [(4, 2), (5, 4), (5,)], [(2, 5)], 10 * (8 + 3), **BIAS, **TURNED),
    cost("_FusedBatchNormEx", [(4, 9, 8, 8)], NORM, 2304 * 2, is_training=False),
    cost(PAD, [IMAGE, (4, 2), FUSED_BANK], [(4, 5, 4, 8)], 640 * 36),
    cost(RESIZE, [IMAGE, (2,), (4, 2), FUSED_BANK], [(4, 3, 3, 8)], 288 * 36),
]


def fused_conv(filters: np.ndarray, order: str) -> np.ndarray:
    """The convolution of one pixel with channels 1 and 2, plus a bias of ten."""
    run = find_kernel("_FusedConv2D")
    assert run is not None
    attrs = {
        "padding": attr.string("VALID"),
        "strides": attr.integers(1, 1, 1, 1),
        "fused_ops": AttrValue("list(string)", (b"BiasAdd",)),
        "filter_format": attr.string(order),
    }
    x = np.array([[[[1, 2]]]], np.float32)
    result = run(Node("conv", "_FusedConv2D", attrs=attrs), x, filters, np.full(3, 10, np.float32))
    assert isinstance(result, np.ndarray)
    return result


# Weights of the two inputs for each of three outputs.
WEIGHTS = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


def test_oihw_filters() -> None:
    # 1 * 1 + 2 * 2, 1 * 3 + 2 * 4, 1 * 5 + 2 * 6, and ten each
    assert fused_conv(WEIGHTS[:, :, None, None], "OIHW").tolist() == [[[[15, 21, 27]]]]
    assert fused_conv(WEIGHTS.T[None, None], "HWIO").tolist() == [[[[15, 21, 27]]]]


def test_vectorized_filters_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="OIHW_VECT_I cannot be run here"):
        fused_conv(np.ones((3, 1, 1, 1, 4), np.float32), "OIHW_VECT_I")


def test_fused_resize_and_pad_conv() -> None:
    x = np.float32([[0, 2]]).reshape(1, 1, 2, 1)
    paddings = np.int32([[0, 0], [0, 0], [1, 0], [0, 0]])
    attrs = {"strides": [1, 1, 1, 1], "padding": "VALID", "mode": "REFLECT"}
    # Aligned corners: 0 1 2; mirrored: 1 0 1 2; then each value plus ten times the next.
    pair = np.float32([1, 10]).reshape(1, 2, 1, 1)
    size = np.int32([1, 3])
    inputs = (x, size, paddings, pair)
    aligned = run("FusedResizeAndPadConv2D", *inputs, **attrs, resize_align_corners=True)
    assert aligned.ravel().tolist() == [1, 10, 21]
    # Not aligned: positions 2/3 apart, 0 4/3 2.
    plain = run("FusedResizeAndPadConv2D", *inputs, **attrs)
    np.testing.assert_allclose(plain.ravel(), [4 / 3, 40 / 3, 64 / 3], rtol=1e-6)


test_shapes_and_costs = case_tests(SHAPES, COSTS)
