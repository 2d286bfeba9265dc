"""Kernels of pooling."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.kernel import kernel
from mobileprep.ops.kernels._common import integers
from mobileprep.ops.kernels.conv import channels_as_in, channels_last
from mobileprep.ops.pooling import average, maximum
from mobileprep.ops.window import Window, layout_of, make_window, spatial


@kernel("MaxPool", "MaxPool3D")
def max_pool(node: Node, x: Array) -> Array:
    """The largest element of each window."""
    layout = layout_of(node)
    source = channels_last(x, layout)
    window = _window(node, source, node.attr_ints("ksize"), node.attr_ints("strides"), layout)
    return channels_as_in(maximum(source, window), layout)


@kernel("MaxPoolV2")
def max_pool_v2(node: Node, x: Array, size: Array, strides: Array) -> Array:
    """``MaxPool`` with the window given by tensors."""
    layout = layout_of(node)
    source = channels_last(x, layout)
    window = _window(node, source, integers(size), integers(strides), layout)
    return channels_as_in(maximum(source, window), layout)


@kernel("AvgPool", "AvgPool3D")
def avg_pool(node: Node, x: Array) -> Array:
    """The mean of each window's elements, padding left out."""
    layout = layout_of(node)
    source = channels_last(x, layout)
    window = _window(node, source, node.attr_ints("ksize"), node.attr_ints("strides"), layout)
    return channels_as_in(average(source, window), layout)


def _window(
    node: Node, x: Array, size: Sequence[int], strides: Sequence[int], layout: str
) -> Window:
    if not x.ndim == len(size) == len(strides):
        message = f"a window over {len(size)} axes on a tensor of {x.ndim}"
        raise ValueError(message)
    inner = spatial(size, layout)
    ones = (1,) * len(inner)
    return make_window(node, x.shape[1:-1], inner, spatial(strides, layout), ones)
