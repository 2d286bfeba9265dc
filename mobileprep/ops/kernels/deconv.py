"""Kernels of transposed convolutions."""

from __future__ import annotations

from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.kernel import kernel
from mobileprep.ops.kernels._common import check_allocation, integers, same_type
from mobileprep.ops.kernels.conv import channels_as_in, channels_last, widened
from mobileprep.ops.transposed import convolve_transposed
from mobileprep.ops.window import NHWC, layout_of, make_window, spatial


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


def _shape(sizes: tuple[int, ...], y: Array, filters: Array, layout: str) -> tuple[int, ...]:
    """The whole shape of the result, where sizes may name its height and width alone."""
    if len(sizes) != y.ndim - 2:
        return sizes
    channels = filters.shape[-2]
    return (len(y), *sizes, channels) if layout == NHWC else (len(y), channels, *sizes)
