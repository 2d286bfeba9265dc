"""Transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.convolution import convolve_transposed
from mobileprep.numerics.windows import NHWC, layout_of, make_window, spatial
from mobileprep.ops.arrays import check_allocation, integers, same_type
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.nn.conv import channels_as_in, channels_last, widened
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput")
def conv_backprop_input(node: Node, sizes: Array, filters: Array, y: Array) -> Array:
    """A transposed convolution, which networks use to enlarge their maps."""
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
    ones = (1,) * rank
    window = make_window(
        node,
        shape[1:-1],
        filters.shape[:-2],
        spatial(node.attr_ints("strides"), layout),
        spatial(node.attr_ints("dilations", ones) or ones, layout),
    )
    source, bank = widened(channels_last(y, layout), filters)
    depthwise = node.op.startswith("Depthwise")
    out = convolve_transposed(shape, bank, source, window, depthwise=depthwise)
    return channels_as_in(out.astype(y.dtype, copy=False), layout)


@shape_fn("Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput")
def conv_input_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the first input holds."""
    rank = 5 if args.node.op.startswith("Conv3D") else 4
    return [with_rank(args.as_shape(0), rank)]


@flop_rule("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def transposed_flops(sizes: Sizes) -> float:
    """For each element that comes in, one multiplication and addition for each of its filters'."""
    return 2 * sizes.taken(2) * math.prod(sizes.input(1)[:-1])


@flop_rule("DepthwiseConv2dNativeBackpropInput")
def transposed_depthwise_flops(sizes: Sizes) -> float:
    """As of a transposed convolution of one channel."""
    return 2 * sizes.taken(2) * math.prod(sizes.input(1)[:2])


def _shape(sizes: tuple[int, ...], y: Array, filters: Array, layout: str) -> tuple[int, ...]:
    """The whole shape of the result, where sizes may name its height and width alone."""
    if len(sizes) != y.ndim - 2:
        return sizes
    channels = filters.shape[-2]
    return (len(y), *sizes, channels) if layout == NHWC else (len(y), channels, *sizes)
