"""Quantized convolutions, matrix products, and pooling."""

from __future__ import annotations

import math

import numpy as np

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import check_allocation
from mobileprep.ops.kernel import kernel
from mobileprep.ops.math.products import matmul_shape, matrix_product_flops
from mobileprep.ops.nn.conv import (
    conv_shape,
    convolution_flops,
    depthwise_conv_shape,
    depthwise_flops,
)
from mobileprep.ops.nn.pooling import average, maximum, pool_flops, pool_shape
from mobileprep.ops.numerics.convolution import convolve_depthwise
from mobileprep.ops.numerics.integer_products import convolve_integers, multiply_integers
from mobileprep.ops.numerics.quantization import offset_of_zero
from mobileprep.ops.numerics.windows import NHWC, Window, filter_window, make_window, spatial
from mobileprep.ops.quantized.ranges import (
    Quantized,
    check_output,
    check_type,
    limits_of,
    product_limits,
    proper_limits,
    same_range,
    with_range,
)
from mobileprep.ops.shape_function import OutputShapes, ShapeArgs, shape_fn

_UINT8, _INT8, _INT32 = np.dtype(np.uint8), np.dtype(np.int8), np.dtype(np.int32)
# Number of taps for which a sum of 8-bit products is exact in single precision.
_EXACT_TAPS = (1 << 24) // (255 * 128)


# Convolutions with fused ops in oneDNN, which the interpreter does not support.
_REQUANTIZED = (
    *("QuantizedConv2DAndRequantize", "QuantizedConv2DAndReluAndRequantize"),
    *("QuantizedConv2DWithBiasAndRequantize", "QuantizedConv2DWithBiasAndReluAndRequantize"),
)


@kernel("QuantizedConv2D", flops=convolution_flops)
def quantized_conv(
    node: Node, x: Array, filters: Array, low_x: Array, high_x: Array, low_f: Array, high_f: Array
) -> Quantized:
    """Compute a convolution over two spatial axes.

    Unsigned filters are quantized with their ranges. TensorFlow 2 runs signed ones with oneDNN,
    which uses zero point 0 for both factors, regardless of their ranges.
    """
    check_type(node, "Tinput", x, DType.QUINT8)
    check_type(node, "Tfilter", filters, DType.QUINT8, DType.QINT8)
    check_output(node, "out_type", DType.QINT32)
    if x.ndim != 4 or filters.ndim != 4 or x.shape[3] != filters.shape[2]:
        message = f"filters of shape {list(filters.shape)} for images of {list(x.shape)}"
        raise ValueError(message)
    of_x, of_f = limits_of(low_x, high_x), limits_of(low_f, high_f)
    limits = product_limits(of_x, of_f, _UINT8, filters.dtype)
    if filters.dtype == _INT8:
        window = filter_window(node, x, filters)
        _check(window, x, filters.shape[3])
        return convolve_integers(x, filters, window), *limits.outputs()
    window, inner = _centred(node, x, filters)
    _check(window, inner, filters.shape[3])
    zeros = offset_of_zero(of_x, _UINT8), offset_of_zero(of_f, _UINT8)
    return convolve_integers(inner, filters, window, zeros), *limits.outputs()


shape_fn("QuantizedConv2D", *_REQUANTIZED)(with_range(conv_shape))


@kernel("QuantizedDepthwiseConv2D", flops=depthwise_flops)
def quantized_depthwise_conv(
    node: Node, x: Array, filters: Array, low_x: Array, high_x: Array, low_f: Array, high_f: Array
) -> Quantized:
    """Convolve each channel with its own signed filters; zero points are 0."""
    check_type(node, "Tinput", x, DType.QUINT8)
    check_type(node, "Tfilter", filters, DType.QINT8)
    check_output(node, "out_type", DType.QINT32)
    if x.ndim != 4 or filters.ndim != 4:
        message = "input and filters need 4 axes"
        raise ValueError(message)
    limits = product_limits(limits_of(low_x, high_x), limits_of(low_f, high_f), _UINT8, _INT8)
    window = filter_window(node, x, filters)
    _check(window, x, math.prod(filters.shape[2:]))
    kind = np.float32 if math.prod(window.size) <= _EXACT_TAPS else np.float64
    out = convolve_depthwise(x.astype(kind), filters.astype(kind), window)
    return out.astype(np.int32), *limits.outputs()


@shape_fn("QuantizedDepthwiseConv2D")
def quantized_depthwise_conv_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of ``DepthwiseConv2dNative``; TensorFlow declares no shapes for ranges."""
    return [*depthwise_conv_shape(args), None, None]


def _check(window: Window, x: Array, channels: int) -> None:
    """Raise an error for results that are too large, and for windows that do not fit."""
    check_allocation((len(x), *window.positions(x.shape[1:-1]), channels), _INT32)


def _centred(node: Node, x: Array, filters: Array) -> tuple[Window, Array]:
    """Return the window, and the part of x that it slides over.

    TensorFlow centers the windows' positions on the input: if strides skip some elements at its
    end, they skip as many at its beginning.
    """
    stride, padding = _stride(node), node.attr_str("padding")
    if padding not in ("SAME", "VALID"):
        message = f"node {node.name!r} ({node.op}) has the padding {padding!r}"
        raise InvalidGraphError(message, "it is SAME or VALID")
    pads, inside = [], []
    for extent, size in zip(x.shape[1:3], filters.shape[:2], strict=True):
        room = extent if padding == "SAME" else extent - size + 1
        missing = (max(-(-room // stride), 0) - 1) * stride + size - extent
        # C truncates quotients toward zero.
        before = int((missing + (padding == "VALID")) / 2)
        pads.append((max(before, 0), max(missing - before, 0)))
        inside.append(slice(max(-before, 0), extent + min(missing - before, 0)))
    window = Window(filters.shape[:2], (stride, stride), (1, 1), tuple(pads))
    return window, x[:, inside[0], inside[1]]


def _stride(node: Node) -> int:
    ones = (1, 1, 1, 1)
    strides, dilations = node.attr_ints("strides"), node.attr_ints("dilations", ones) or ones
    if len(strides) != 4 or len(dilations) != 4 or min(*strides, *dilations) < 1:
        message = f"node {node.name!r} ({node.op}) has the strides {list(strides)} and dilations "
        message += f"{list(dilations)}"
        raise InvalidGraphError(message, "give four of each, at least 1")
    rows, columns = spatial(strides, NHWC)
    if rows != columns or dilations != ones:
        message = f"node {node.name!r}: no {node.op} with the strides {list(strides)} and "
        message += f"dilations {list(dilations)}"
        raise UnsupportedError(message, "it needs equal strides and no dilations")
    return rows


@shape_fn(
    *("QuantizedConv2DAndRelu", "QuantizedConv2DPerChannel", "QuantizedConv2DWithBias"),
    "QuantizedConv2DWithBiasAndRelu",
)
def quantized_conv_by_channel_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of ``Conv2D``, and ranges like those of the filters, maybe per channel."""
    return [*conv_shape(args), args.shapes[-1], args.shapes[-1]]


@kernel("QuantizedMatMul", shape=with_range(matmul_shape), flops=matrix_product_flops)
def quantized_mat_mul(
    node: Node, x: Array, y: Array, low_x: Array, high_x: Array, low_y: Array, high_y: Array
) -> Quantized:
    """Multiply two matrices, each transposed if its attribute is set."""
    check_type(node, "T1", x, DType.QUINT8)
    check_type(node, "T2", y, DType.QUINT8)
    check_output(node, "Toutput", DType.QINT32)
    of_x, of_y = proper_limits(node, low_x, high_x), proper_limits(node, low_y, high_y)
    lhs, rhs = (
        matrix.T if node.attr_bool(transposed, False) else matrix
        for matrix, transposed in ((x, "transpose_a"), (y, "transpose_b"))
    )
    if x.ndim != 2 or y.ndim != 2 or lhs.shape[1] != rhs.shape[0]:
        message = f"no product of matrices of shapes {list(lhs.shape)} and {list(rhs.shape)}"
        raise ValueError(message)
    check_allocation((lhs.shape[0], rhs.shape[1]), _INT32)
    zeros = offset_of_zero(of_x, _UINT8), offset_of_zero(of_y, _UINT8)
    out = multiply_integers(lhs, rhs, zeros)
    return out, *product_limits(of_x, of_y, _UINT8, _UINT8).outputs()


# Up to this size, means of 8-bit numbers in single precision are truncated to the right integer:
# they are either integers or far enough from one.
_FEW_TAPS = 1 << 10


@kernel("QuantizedMaxPool", flops=pool_flops)
def quantized_max_pool(node: Node, x: Array, low: Array, high: Array) -> Quantized:
    """Return the maximum of each window."""
    return maximum(x, _window(node, x)), *same_range(low, high)


@kernel("QuantizedAvgPool", flops=pool_flops)
def quantized_avg_pool(node: Node, x: Array, low: Array, high: Array) -> Quantized:
    """Return the mean of each window without padding, truncated toward zero."""
    window = _window(node, x)
    kind = np.float32 if math.prod(window.size) <= _FEW_TAPS else np.float64
    # The cast truncates to integers.
    return average(x.astype(kind), window).astype(x.dtype), *same_range(low, high)


shape_fn("QuantizedMaxPool", "QuantizedAvgPool")(with_range(pool_shape))


def _window(node: Node, x: Array) -> Window:
    check_type(node, "T", x, DType.QUINT8, DType.QINT8)
    size, strides = node.attr_ints("ksize"), node.attr_ints("strides")
    if not x.ndim == len(size) == len(strides) == 4:
        message = f"a window over {len(size)} axes on a tensor of {x.ndim}"
        raise ValueError(message)
    return make_window(node, x.shape[1:3], spatial(size, NHWC), spatial(strides, NHWC), (1, 1))
