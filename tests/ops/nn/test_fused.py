"""Fused ops."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.node import Node
from mobileprep.ops.kernel import find_kernel
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import run

TWO = {"strides": (1, 2, 2, 1), "padding": "SAME"}
BIAS = {"num_args": 1, "fused_ops": ("BiasAdd", "Relu6")}
FLOATS = {"TArgs": (DType.FLOAT,)}
TURNED = {"transpose_a": True, "transpose_b": True}
IMAGE, BANK, DEPTHWISE = (4, 9, 8, 3), (3, 2, 3, 8), (3, 2, 3, 2)
CHUNKS = {"filter_format": "OIHW_VECT_I"}
VECTORS = [(8,)] * 4
# The shape of the last output, the reserved space, is unknown.
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
    shapes("_FusedConv2D", [IMAGE, None, (8,)], [(4, 5, 4, -1)], **CHUNKS, **TWO, **BIAS, **FLOATS),
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
    # The same filters with outputs and inputs first: 640 elements of 2 x 3 x 2 x 3 operations.
    cost("_FusedConv2D", [IMAGE, (8, 3, 3, 2)], [(4, 5, 4, 8)], 640 * 36, filter_format="OIHW"),
    cost("_FusedConv2D", [IMAGE, (8, 1, 3, 2, 4)], [(4, 5, 4, 8)], None, **CHUNKS),
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

test_shapes_and_costs = case_tests(SHAPES, COSTS)


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
