"""Convolutions, transposed convolutions, and dilations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from mobileprep.core.limits import STEP, spend
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import check_allocation, integers, same_type
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.math.products import fused_ops_flops
from mobileprep.ops.nn.window_shapes import (
    channels_as_in,
    channels_last,
    image_layout,
    slid,
    widened,
    window_places,
)
from mobileprep.ops.numerics.convolution import convolve, convolve_depthwise, convolve_transposed
from mobileprep.ops.numerics.windows import (
    NHWC,
    Window,
    attr_window,
    filter_window,
    layout_of,
    lowest,
    padded_rows,
    whole_tile,
)
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    ShapeConflictError,
    merge_dim,
    multiply_dims,
    shape_fn,
    with_rank,
)
from mobileprep.ops.shape_inference import Shapes, shape_of


def has_channel_groups(convolution: Node, shapes: Mapping[str, Shapes]) -> bool:
    """Return whether a Conv2D is known to have filters for fewer channels than its images."""
    if len(convolution.data_inputs) != 2:
        return False
    images, filters = (shape_of(shapes, ref) for ref in convolution.data_inputs)
    if images is None or len(images) != 4 or filters is None or len(filters) != 4:
        return False
    channels = images[1 if convolution.attr_str("data_format", "NHWC") == "NCHW" else 3]
    return -1 not in (channels, filters[2]) and channels != filters[2]


@kernel("Conv2D", "Conv3D")
def conv(node: Node, x: Array, filters: Array) -> Array:
    """Compute a convolution over two or three spatial axes."""
    return _convolved(node, x, filters, convolve, 5 if node.op == "Conv3D" else 4)


@shape_fn("Conv2D", "Conv3D")
def conv_shape(args: ShapeArgs) -> OutputShapes:
    """Return an image's shape with a channel for each filter."""
    rank = 5 if args.node.op == "Conv3D" else 4
    return [convolved_shape(args.node, with_rank(args.shapes[0], rank), args.shapes[1])]


@flop_rule("Conv2D", "Conv3D")
def convolution_flops(sizes: Sizes) -> float:
    """Count a multiplication and an addition for each element of the filter, for each output."""
    return 2 * sizes.output_elements() * math.prod(sizes.input(1)[:-1]) + fused_ops_flops(sizes)


def convolved_shape(node: Node, shape: tuple[int, ...], bank: TensorShape) -> TensorShape:
    """Return the shape of an image convolved with filters [*window, inputs, outputs]."""
    layout, filters = image_layout(node, len(shape)), with_rank(bank, len(shape))
    depth, inputs = shape[layout.channel], filters[-2]
    if depth > 0 and inputs > 0 and depth % inputs:
        message = f"filters for {inputs} channels do not fit an image with {depth}"
        raise ShapeConflictError(message)
    return slid(node, shape, layout, filters[:-2], filters[-1])


@kernel("DepthwiseConv2dNative")
def depthwise_conv(node: Node, x: Array, filters: Array) -> Array:
    """Convolve each channel with its own filters."""
    return _convolved(node, x, filters, convolve_depthwise, 4)


@shape_fn("DepthwiseConv2dNative")
def depthwise_conv_shape(args: ShapeArgs) -> OutputShapes:
    """Return the image's shape with channels multiplied by the filters for each."""
    layout = image_layout(args.node)
    shape, filters = with_rank(args.shapes[0], 4), with_rank(args.shapes[1], 4)
    channels = multiply_dims(merge_dim(shape[layout.channel], filters[2]), filters[3])
    return [slid(args.node, shape, layout, filters[:2], channels)]


@flop_rule("DepthwiseConv2dNative")
def depthwise_flops(sizes: Sizes) -> float:
    """Count a convolution of one channel."""
    return 2 * sizes.output_elements() * math.prod(sizes.input(1)[:2]) + fused_ops_flops(sizes)


def _convolved(
    node: Node, x: Array, filters: Array, run: Callable[[Array, Array, Window], Array], rank: int
) -> Array:
    same_type(node, x, filters)
    if x.ndim != rank or filters.ndim != rank:
        message = f"input and filters need {rank} axes"
        raise ValueError(message)
    layout = layout_of(node)
    source, bank = widened(channels_last(x, layout), filters)
    out = run(source, bank, filter_window(node, source, bank, layout))
    return channels_as_in(out.astype(x.dtype, copy=False), layout)


@kernel("Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput")
def conv_backprop_input(node: Node, sizes: Array, filters: Array, y: Array) -> Array:
    """Compute a transposed convolution, which networks use for upsampling."""
    same_type(node, filters, y)
    rank = 5 if node.op.startswith("Conv3D") else 4
    layout = layout_of(node)
    shape = _shape(integers(sizes), y, filters, layout)
    if not len(shape) == y.ndim == filters.ndim == rank:
        message = f"sizes {list(shape)}, filters and input need {rank} axes"
        raise ValueError(message)
    if layout != NHWC:
        shape = (shape[0], *shape[2:], shape[1])
    check_allocation(shape, y.dtype)
    window = attr_window(node, shape[1:-1], filters.shape[:-2], layout)
    source, bank = widened(channels_last(y, layout), filters)
    depthwise = node.op.startswith("Depthwise")
    out = convolve_transposed(shape, bank, source, window, depthwise=depthwise)
    return channels_as_in(out.astype(y.dtype, copy=False), layout)


@shape_fn(
    *("Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput"),
    *("Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter"),
)
def gradient_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of the image or the filters, which an input holds."""
    rank = 5 if args.node.op.startswith("Conv3D") else 4
    return [with_rank(args.as_shape(1 if "Filter" in args.node.op else 0), rank)]


@flop_rule("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def transposed_flops(sizes: Sizes) -> float:
    """Count a multiplication and an addition for each input element and filter element."""
    return 2 * sizes.input_elements(2) * math.prod(sizes.input(1)[:-1])


@flop_rule("DepthwiseConv2dNativeBackpropInput")
def transposed_depthwise_flops(sizes: Sizes) -> float:
    """Count a transposed convolution of one channel."""
    return 2 * sizes.input_elements(2) * math.prod(sizes.input(1)[:2])


def _shape(sizes: tuple[int, ...], y: Array, filters: Array, layout: str) -> tuple[int, ...]:
    """Return the whole shape of the result, if sizes may contain only its height and width."""
    if len(sizes) != y.ndim - 2:
        return sizes
    channels = filters.shape[-2]
    return (len(y), *sizes, channels) if layout == NHWC else (len(y), channels, *sizes)


# Operations for a sum and a comparison.
_COST = 64


@kernel("Dilation2D")
def dilation_2d(node: Node, x: Array, filters: Array) -> Array:
    """Return the largest sum of a pixel and its filter element in each window."""
    same_type(node, x, filters)
    if x.ndim != 4 or filters.ndim != 3 or x.shape[-1] != filters.shape[-1]:
        message = "filters [height, width, channels] for an input of as many channels are needed"
        raise ValueError(message)
    window = attr_window(node, x.shape[1:3], filters.shape[:2], dilations=node.attr_ints("rates"))
    positions = window.positions(x.shape[1:3])
    each = len(x) * math.prod(positions) * x.shape[-1]
    spend(filters[..., 0].size * (_COST * each + STEP), "the filter")
    source = padded_rows(x, window, whole_tile(x, window), lowest(x))
    out = np.full((len(x), *positions, x.shape[-1]), lowest(x), dtype=x.dtype)
    for i, j in np.ndindex(*filters.shape[:2]):
        rows, columns = (
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip((i, j), window.dilations, positions, window.strides, strict=True)
        )
        np.maximum(out, source[:, rows, columns] + filters[i, j], out=out)
    return out


@shape_fn("Dilation2D")
def dilation_shape(args: ShapeArgs) -> OutputShapes:
    """Return the image's shape with a result for each window."""
    image, filters = with_rank(args.shapes[0], 4), with_rank(args.shapes[1], 3)
    rows, columns = window_places(args.node, image, filters[:2])
    if UNKNOWN not in (rows, columns):
        merge_dim(image[3], filters[2])
    return [(image[0], rows, columns, filters[2])]


@flop_rule("Dilation2D")
def dilation_flops(sizes: Sizes) -> float:
    """Count an addition and a comparison for each element of the filter, for each output."""
    return 2 * sizes.output_elements() * math.prod(sizes.input(1)[:2])
