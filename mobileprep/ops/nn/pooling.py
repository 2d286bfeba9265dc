"""Pooling: one number for each window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.pooling import average, maximum
from mobileprep.numerics.windows import NHWC, Window, layout_of, make_window, spatial
from mobileprep.ops.arrays import integers
from mobileprep.ops.common_costs import depends_on_values
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.nn.conv import channels_as_in, channels_last
from mobileprep.ops.nn.window_shapes import pooled_shape, pooled_sizes
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

_IMAGE_RANK: Final = 4


@kernel("MaxPool", "MaxPool3D")
def max_pool(node: Node, x: Array) -> Array:
    """The largest element of each window."""
    return _maximum(node, x, node.attr_ints("ksize"), node.attr_ints("strides"))


@kernel("AvgPool", "AvgPool3D")
def avg_pool(node: Node, x: Array) -> Array:
    """The mean of each window's elements, padding left out."""
    layout = layout_of(node)
    source = channels_last(x, layout)
    window = _window(node, source, node.attr_ints("ksize"), node.attr_ints("strides"), layout)
    return channels_as_in(average(source, window), layout)


@shape_fn("MaxPool", "MaxPool3D", "AvgPool", "AvgPool3D")
def pool_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The image with a result for each window."""
    return [pooled_shape(args)]


@flop_rule("MaxPool", "MaxPool3D", "AvgPool", "AvgPool3D")
def pool_flops(sizes: Sizes) -> float:
    """One operation for each element of each window."""
    return sizes.made() * math.prod(sizes.node.attr_ints("ksize"))


@kernel("MaxPoolV2")
def max_pool_v2(node: Node, x: Array, size: Array, strides: Array) -> Array:
    """``MaxPool`` with the window given by tensors."""
    return _maximum(node, x, integers(size), integers(strides))


@shape_fn("MaxPoolV2")
def max_pool_v2_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """As ``MaxPool``; not even the rank where the window or its strides are not known."""
    sizes, strides = args.integers(1), args.integers(2)
    shape = with_rank(args.shapes[0], 4)
    if sizes is None or strides is None or len(sizes) != 4 or len(strides) != 4:
        return [None]
    return [pooled_sizes(args.node, shape, sizes, strides)]


flop_rule("MaxPoolV2")(depends_on_values)


def _maximum(node: Node, x: Array, size: Sequence[int], strides: Sequence[int]) -> Array:
    layout = layout_of(node)
    if layout == NHWC and x.ndim == len(size) == len(strides) == _IMAGE_RANK and size[-1] > 1:
        return _deepest(x, size, strides)
    source = channels_last(x, layout)
    window = _window(node, source, size, strides, layout)
    return channels_as_in(maximum(source, window), layout)


def _deepest(x: Array, size: Sequence[int], strides: Sequence[int]) -> Array:
    """The largest of every ``size[-1]`` neighboring channels, as in a maxout network.

    The windows cover one pixel, do not overlap, and fill the channels, as TensorFlow's kernel
    demands: https://github.com/tensorflow/tensorflow/blob/v1.15.0/tensorflow/core/kernels/pooling_ops_common.cc
    """
    window = size[-1]
    if tuple(size[:-1]) != (1, 1, 1) or tuple(strides) != tuple(size) or x.shape[-1] % window:
        message = (
            f"pooling along {x.shape[-1]} channels takes a window [1, 1, 1, k] and equal strides, "
            f"where k divides the channels: found window {list(size)} and strides {list(strides)}"
        )
        raise ValueError(message)
    groups = x.reshape(*x.shape[:-1], x.shape[-1] // window, window)
    largest: Array = groups.max(axis=-1)
    return largest


def _window(
    node: Node, x: Array, size: Sequence[int], strides: Sequence[int], layout: str
) -> Window:
    if not x.ndim == len(size) == len(strides):
        message = f"a window over {len(size)} axes on a tensor of {x.ndim}"
        raise ValueError(message)
    inner = spatial(size, layout)
    ones = (1,) * len(inner)
    return make_window(node, x.shape[1:-1], inner, spatial(strides, layout), ones)


@shape_fn("MaxPoolGrad")
def max_pool_grad_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape of the image that was pooled, the first input."""
    return [with_rank(args.shapes[0], 4)]


@shape_fn("AvgPoolGrad")
def avg_pool_grad_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the first input holds."""
    return [with_rank(args.as_shape(0), 4)]
