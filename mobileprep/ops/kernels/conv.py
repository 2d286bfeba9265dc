"""Kernels of convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.convolution import convolve, convolve_depthwise
from mobileprep.ops.kernel import kernel
from mobileprep.ops.kernels._common import same_type
from mobileprep.ops.window import NHWC, layout_of, make_window, spatial


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
    same_type(node, x, filters)
    _check_rank(x, filters, 5 if node.op == "Conv3D" else 4)
    layout = layout_of(node)
    source, bank = widened(channels_last(x, layout), filters)
    dilations = node.attr_ints("dilations", (1,) * x.ndim) or (1,) * x.ndim
    window = make_window(
        node,
        source.shape[1:-1],
        filters.shape[:-2],
        spatial(node.attr_ints("strides"), layout),
        spatial(dilations, layout),
    )
    return channels_as_in(_narrowed(convolve(source, bank, window), x.dtype), layout)


@kernel("DepthwiseConv2dNative")
def depthwise_conv(node: Node, x: Array, filters: Array) -> Array:
    """A convolution of each channel with its own filters."""
    same_type(node, x, filters)
    _check_rank(x, filters, 4)
    layout = layout_of(node)
    source, bank = widened(channels_last(x, layout), filters)
    window = make_window(
        node,
        source.shape[1:-1],
        filters.shape[:2],
        spatial(node.attr_ints("strides"), layout),
        spatial(node.attr_ints("dilations", (1, 1, 1, 1)) or (1, 1, 1, 1), layout),
    )
    return channels_as_in(_narrowed(convolve_depthwise(source, bank, window), x.dtype), layout)


def _check_rank(x: Array, filters: Array, rank: int) -> None:
    if x.ndim != rank or filters.ndim != rank:
        message = f"input and filters need {rank} axes"
        raise ValueError(message)


def _narrowed(x: Array, dtype: np.dtype[Any]) -> Array:
    return x.astype(dtype, copy=False)
