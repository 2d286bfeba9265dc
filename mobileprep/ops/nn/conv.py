"""Convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.convolution import convolve, convolve_depthwise
from mobileprep.numerics.windows import NHWC, Window, filter_window, layout_of
from mobileprep.ops.arrays import same_type
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import ShapeConflictError, merge_dim, multiply_dims, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.math.matmul import fused_ops_flops
from mobileprep.ops.nn.window_shapes import image_layout, slid
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


def channels_last(x: Array, layout: str) -> Array:
    """A view of x with its channels last."""
    return x if layout == NHWC else np.moveaxis(x, 1, -1)


def channels_as_in(x: Array, layout: str) -> Array:
    """The inverse of ``channels_last``."""
    return x if layout == NHWC else np.moveaxis(x, -1, 1)


def widened(*arrays: Array) -> tuple[Array, ...]:
    """Half precision as single precision, in which products are summed."""
    if arrays[0].dtype.itemsize == 2:
        return tuple(x.astype(np.float32) for x in arrays)
    return arrays


@kernel("Conv2D", "Conv3D")
def conv(node: Node, x: Array, filters: Array) -> Array:
    """A convolution over two or three spatial axes."""
    return _convolved(node, x, filters, convolve, 5 if node.op == "Conv3D" else 4)


@shape_fn("Conv2D", "Conv3D")
def conv_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """An image with as many channels as there are filters."""
    rank = 5 if args.node.op == "Conv3D" else 4
    return [convolved_shape(args.node, with_rank(args.shapes[0], rank), args.shapes[1])]


@flop_rule("Conv2D", "Conv3D")
def convolution_flops(sizes: Sizes) -> float:
    """A multiplication and an addition for each element of the filter, for each output."""
    return 2 * sizes.made() * math.prod(sizes.input(1)[:-1]) + fused_ops_flops(sizes)


def convolved_shape(node: Node, shape: tuple[int, ...], bank: TensorShape) -> TensorShape:
    """An image of some shape convolved by filters [*window, inputs, outputs]."""
    layout, filters = image_layout(node, len(shape)), with_rank(bank, len(shape))
    depth, inputs = shape[layout.channel], filters[-2]
    if depth > 0 and inputs > 0 and depth % inputs:
        message = f"filters for {inputs} channels do not fit an image with {depth}"
        raise ShapeConflictError(message)
    return slid(node, shape, layout, filters[:-2], filters[-1])


@kernel("DepthwiseConv2dNative")
def depthwise_conv(node: Node, x: Array, filters: Array) -> Array:
    """A convolution of each channel with its own filters."""
    return _convolved(node, x, filters, convolve_depthwise, 4)


@shape_fn("DepthwiseConv2dNative")
def depthwise_conv_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """An image with as many channels as it had, times the filters for each."""
    layout = image_layout(args.node)
    shape, filters = with_rank(args.shapes[0], 4), with_rank(args.shapes[1], 4)
    channels = multiply_dims(merge_dim(shape[layout.channel], filters[2]), filters[3])
    return [slid(args.node, shape, layout, filters[:2], channels)]


@flop_rule("DepthwiseConv2dNative")
def depthwise_flops(sizes: Sizes) -> float:
    """As a convolution of one channel."""
    return 2 * sizes.made() * math.prod(sizes.input(1)[:2]) + fused_ops_flops(sizes)


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


@shape_fn("Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter")
def filter_gradient_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the second input holds."""
    rank = 5 if args.node.op.startswith("Conv3D") else 4
    return [with_rank(args.as_shape(1), rank)]
