"""Layouts and shapes of images for windows of convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.windows import NHWC
from mobileprep.ops.shape_function import UNKNOWN, ShapeArgs, ShapeConflictError, with_rank


class ImageLayout(Struct, frozen=True):
    """The spatial and channel axes of an image."""

    space: tuple[int, ...]
    channel: int

    @property
    def rank(self) -> int:
        return len(self.space) + 2


def image_layout(node: Node, rank: int = 4) -> ImageLayout:
    """Return the layout from a node's ``data_format`` for an image of the given rank."""
    if node.attr_str("data_format", "").startswith("NC"):
        return ImageLayout(tuple(range(2, rank)), 1)
    return ImageLayout(tuple(range(1, rank - 1)), rank - 1)


def window_count(size: int, window: int, stride: int, padding: str, edges: int = 0) -> int:
    """Return the number of windows that fit into a size with explicit padding.

    Source: ``GetWindowedOutputSizeFromDims``.
    """
    if stride < 1:
        message = f"a stride cannot be {stride}"
        raise ShapeConflictError(message)
    if size < 0 or (window < 0 and padding != "SAME"):
        return UNKNOWN
    if padding == "SAME":
        return -(-size // stride)
    room = size + edges
    if window > room:
        message = f"a window of {window} does not fit into {room}"
        raise ShapeConflictError(message)
    return (room - window) // stride + 1


def window_places(node: Node, image: tuple[int, ...], windows: Sequence[int]) -> tuple[int, int]:
    """Return the rows and columns of window positions for windows dilated by ``rates`` over NHWC.

    Both are unknown unless all sizes are known. A window that is too large by less than two strides
    does not have a position, since C truncates quotients toward zero.

    Source: ``GetWindowedOutputSize``.
    """
    strides, rates = node.attr_ints("strides"), node.attr_ints("rates")
    if len(strides) != 4 or len(rates) != 4:
        message = "4 strides and rates are needed"
        raise ShapeConflictError(message)
    if UNKNOWN in (*image[1:3], *windows):
        return UNKNOWN, UNKNOWN
    padding = node.attr_str("padding")
    rows, columns = (
        _places(image[i], (windows[i - 1] - 1) * rates[i] + 1, strides[i], padding) for i in (1, 2)
    )
    return rows, columns


def _places(size: int, window: int, stride: int, padding: str) -> int:
    if padding != "SAME" and size < window < size + 2 * stride:
        return 0
    return window_count(size, window, stride, padding)


def _edges(node: Node, rank: int) -> list[int]:
    """Return the total explicit padding of each axis."""
    if node.attr_str("padding") != "EXPLICIT":
        return [0] * rank
    listed = node.attr_ints("explicit_paddings", ())
    if len(listed) != 2 * rank:
        message = f"{2 * rank} explicit paddings are needed"
        raise ShapeConflictError(message)
    return [before + behind for before, behind in zip(listed[::2], listed[1::2], strict=True)]


def slid(
    node: Node, shape: tuple[int, ...], layout: ImageLayout, windows: Sequence[int], channels: int
) -> tuple[int, ...]:
    """Return the shape of an image after windows slid over it."""
    strides = node.attr_ints("strides")
    dilations = node.attr_ints("dilations", (1,) * layout.rank)
    if len(strides) != layout.rank or len(dilations) != layout.rank:
        message = f"{layout.rank} strides and dilations are needed"
        raise ShapeConflictError(message)
    padding, edges = node.attr_str("padding"), _edges(node, layout.rank)
    out = list(shape)
    out[layout.channel] = channels
    for axis, window in zip(layout.space, windows, strict=True):
        wide = window if window < 0 else (window - 1) * dilations[axis] + 1
        out[axis] = window_count(shape[axis], wide, strides[axis], padding, edges[axis])
    return tuple(out)


def pooled_shape(args: ShapeArgs) -> TensorShape:
    """Return the shape of a pooled image, with windows and strides from the node's attributes."""
    sizes = args.node.attr_ints("ksize")
    strides = args.node.attr_ints("strides")
    rank = 5 if args.node.op.endswith("3D") else 4
    if len(sizes) != rank or len(strides) != rank:
        message = f"{rank} window sizes and strides are needed"
        raise ShapeConflictError(message)
    return pooled_sizes(args.node, with_rank(args.shapes[0], rank), sizes, strides)


def pooled_sizes(
    node: Node, shape: tuple[int, ...], sizes: Sequence[int], strides: Sequence[int]
) -> tuple[int, ...]:
    """Return the shape of an image pooled with windows of some sizes, one for each axis."""
    layout = image_layout(node, len(shape))
    padding, edges = node.attr_str("padding"), _edges(node, layout.rank)
    out = list(shape)
    # A window may also span channels, which are never padded.
    for axis in (*layout.space, layout.channel):
        out[axis] = window_count(shape[axis], sizes[axis], strides[axis], padding, edges[axis])
    return tuple(out)


def channels_last(x: Array, layout: str) -> Array:
    """Return a view of x with its channels last."""
    return x if layout == NHWC else np.moveaxis(x, 1, -1)


def channels_as_in(x: Array, layout: str) -> Array:
    """Move the channels back; the inverse of ``channels_last``."""
    return x if layout == NHWC else np.moveaxis(x, -1, 1)


def widened(*arrays: Array) -> tuple[Array, ...]:
    """Convert half precision to single precision, in which products are summed."""
    if arrays[0].dtype.itemsize == 2:
        return tuple(x.astype(np.float32) for x in arrays)
    return arrays
