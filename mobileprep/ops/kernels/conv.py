"""Kernels of convolutions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.convolution import convolve
from mobileprep.ops.depthwise import convolve_depthwise
from mobileprep.ops.kernel import kernel
from mobileprep.ops.kernels._common import same_type
from mobileprep.ops.window import NHWC, Window, filter_window, layout_of


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


@kernel("DepthwiseConv2dNative")
def depthwise_conv(node: Node, x: Array, filters: Array) -> Array:
    """A convolution of each channel with its own filters."""
    return _convolved(node, x, filters, convolve_depthwise, 4)


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
