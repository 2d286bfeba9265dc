"""Convolutions, transposed convolutions, dilations, and convolutions fused with other ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from mobileprep.core.limits import STEP, spend
from mobileprep.errors import UnsupportedError
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.array.blocks import padded_shape
from mobileprep.ops.arrays import check_allocation, integers, same_type
from mobileprep.ops.image.resize import given_size
from mobileprep.ops.kernel import (
    Sizes,
    UnknownCostError,
    call_kernel,
    find_kernel,
    flop_rule,
    kernel,
)
from mobileprep.ops.math.products import fused_ops_flops, matmul_shape, matrix_product_flops
from mobileprep.ops.nn.activations import batch_norm_flops, fused_batch_norm_shape
from mobileprep.ops.nn.pooling import (
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


_ACTIVATIONS = ("Elu", "LeakyRelu", "Relu", "Relu6", "Sigmoid", "Tanh")


def _activated(name: str, node: Node, x: Array) -> Array:
    if name == "LeakyRelu":
        node = node.with_attrs(alpha=attr.floating(node.attr_float("leakyrelu_alpha", 0.2)))
    return _run(name, node, x)


def _run(op: str, node: Node, *inputs: Array) -> Array:
    """Return the first output of another op with this node's attributes."""
    return _run_all(op, node, *inputs)[0]


def _run_all(op: str, node: Node, *inputs: Array) -> tuple[Array, ...]:
    run = find_kernel(op)
    if run is None:
        message = f"the op {op!r} cannot be run here"
        raise ValueError(message)
    return call_kernel(run, replace(node, op=op), list(inputs))


def _finished(node: Node, x: Array, args: Sequence[Array]) -> Array:
    """Apply the ops in the attribute ``fused_ops`` to x."""
    remaining = list(args)
    for name in (op.decode() for op in node.attr_strings("fused_ops")):
        if name in ("BiasAdd", "Add"):
            x = (
                np.add(x, remaining.pop(0))
                if name == "Add"
                else _run("BiasAdd", node, x, remaining.pop(0))
            )
        elif name == "FusedBatchNorm":
            statistics, remaining = remaining[:4], remaining[4:]
            inference = node.with_attrs(is_training=attr.boolean(False))
            x = _run("FusedBatchNorm", inference, x, *statistics)
        elif name in _ACTIVATIONS:
            x = _activated(name, node, x)
        else:
            message = f"the fused op {name!r} is not known"
            raise ValueError(message)
    return x


def _filter_axes(node: Node) -> tuple[int, ...]:
    """Return the axes of height, width, inputs, and outputs of filters; empty for other ranks."""
    order = node.attr_str("filter_format", "HWIO")
    return tuple(map(order.index, "HWIO")) if len(order) == len("HWIO") else ()


@kernel("_FusedConv2D")
def fused_conv_2d(node: Node, x: Array, filters: Array, *args: Array) -> Array:
    """Compute a convolution with bias or batch normalization, and activation."""
    axes = _filter_axes(node)
    if not axes:
        message = f"filters in the order {node.attr_str('filter_format')} cannot be run here"
        raise UnsupportedError(message, "HWIO and OIHW can")
    return _finished(node, _run("Conv2D", node, x, filters.transpose(axes)), args)


@shape_fn("_FusedConv2D")
def fused_conv_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of ``Conv2D`` with filters in the order of ``filter_format``."""
    axes = _filter_axes(args.node)
    filters = with_rank(args.shapes[1] if axes else None, 4)
    ordered = tuple(filters[axis] for axis in axes) or filters
    return [convolved_shape(args.node, with_rank(args.shapes[0], 4), ordered)]


@flop_rule("_FusedConv2D")
def fused_conv_flops(sizes: Sizes) -> float:
    """Count ``Conv2D`` and the fused ops."""
    axes, filters = _filter_axes(sizes.node), sizes.input(1)
    if not axes:
        raise UnknownCostError
    ordered = tuple(filters[axis] for axis in axes)
    return convolution_flops(replace(sizes, inputs=(sizes.inputs[0], ordered, *sizes.inputs[2:])))


@kernel("_FusedDepthwiseConv2dNative", shape=depthwise_conv_shape, flops=depthwise_flops)
def fused_depthwise_conv(node: Node, x: Array, filters: Array, *args: Array) -> Array:
    """Compute a depthwise convolution with bias or batch normalization, and activation."""
    return _finished(node, _run("DepthwiseConv2dNative", node, x, filters), args)


@kernel("_FusedMatMul", shape=matmul_shape, flops=matrix_product_flops)
def fused_mat_mul(node: Node, x: Array, y: Array, *args: Array) -> Array:
    """Compute a matrix product with bias and activation."""
    return _finished(node, _run("MatMul", node, x, y), args)


@kernel("_FusedBatchNormEx", shape=fused_batch_norm_shape, flops=batch_norm_flops)
def fused_batch_norm_ex(
    node: Node,
    x: Array,
    scale: Array,
    offset: Array,
    mean: Array,
    variance: Array,
    *side: Array,
) -> tuple[Array, ...]:
    """Compute a batch normalization followed by a sum and an activation."""
    y, *rest = _run_all("FusedBatchNormV3", node, x, scale, offset, mean, variance)
    for other in side:
        y = np.add(y, other)
    mode = node.attr_str("activation_mode", "Identity")
    if mode != "Identity":
        y = _activated(mode, node, y)
    return (y, *rest)


@kernel("FusedPadConv2D")
def fused_pad_conv_2d(node: Node, x: Array, paddings: Array, filters: Array) -> Array:
    """Compute a convolution of an image with a mirrored border."""
    return _run("Conv2D", node, _run("MirrorPad", node, x, paddings), filters)


@shape_fn("FusedPadConv2D")
def padded_convolution_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of ``Conv2D`` for the padded image."""
    return [_padded_convolution(args, with_rank(args.shapes[0], 4), 1)]


@flop_rule("FusedPadConv2D")
def padded_convolution_flops(sizes: Sizes) -> float:
    """Count the convolution; the border is free."""
    return 2 * sizes.output_elements() * math.prod(sizes.input(2)[:-1])


@kernel("FusedResizeAndPadConv2D")
def fused_resize_and_pad_conv_2d(
    node: Node, x: Array, size: Array, paddings: Array, filters: Array
) -> Array:
    """Compute a convolution of an image after a bilinear resize and a mirrored border."""
    aligned = attr.boolean(node.attr_bool("resize_align_corners", False))
    resized = _run("ResizeBilinear", node.with_attrs(align_corners=aligned), x, size)
    resized = resized.astype(x.dtype, copy=False)
    return _run("Conv2D", node, _run("MirrorPad", node, resized, paddings), filters)


@shape_fn("FusedResizeAndPadConv2D")
def resized_convolution_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of ``Conv2D`` for the resized and padded image."""
    batch, _, _, channels = with_rank(args.shapes[0], 4)
    return [_padded_convolution(args, (batch, *given_size(args, 1), channels), 2)]


@flop_rule("FusedResizeAndPadConv2D")
def resized_convolution_flops(sizes: Sizes) -> float:
    """Count the convolution; the shapes do not determine the size of the resized image."""
    return 2 * sizes.output_elements() * math.prod(sizes.input(3)[:-1])


def _padded_convolution(args: ShapeArgs, image: tuple[int, ...], paddings: int) -> TensorShape:
    """Return the shape of an image padded by one input, convolved with the filters of the next."""
    filters = with_rank(args.shapes[paddings + 1], 4)
    padded = padded_shape(image, args.value(paddings))
    return slid(args.node, padded, image_layout(args.node), filters[:2], filters[3])
