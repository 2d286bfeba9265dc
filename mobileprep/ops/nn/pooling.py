"""Pooling, and the output shapes of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.core.limits import STEP, spend
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import integers, numpy_attr
from mobileprep.ops.kernel import Sizes, depends_on_values, flop_rule, kernel
from mobileprep.ops.numerics.allocation import allocated, check_bytes
from mobileprep.ops.numerics.parallel import for_each, threads
from mobileprep.ops.numerics.windows import (
    NHWC,
    Tile,
    Window,
    layout_of,
    lowest,
    make_window,
    padded_rows,
    patches,
    spatial,
    tiles,
    whole_tile,
)
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    ShapeConflictError,
    input_with_rank,
    shape_fn,
    with_rank,
)

_IMAGE_RANK: Final = 4


@kernel("MaxPool", "MaxPool3D", "MaxPoolV2")
def max_pool(node: Node, x: Array, *inputs: Array) -> Array:
    """Return the maximum of each window, whose size and strides are attributes, or inputs."""
    size, strides = map(integers, inputs) if inputs else map(node.attr_ints, ("ksize", "strides"))
    layout = layout_of(node)
    if layout == NHWC and x.ndim == len(size) == len(strides) == _IMAGE_RANK and size[-1] > 1:
        return _deepest(x, size, strides)
    source = channels_last(x, layout)
    window = _window(node, source, size, strides, layout)
    return channels_as_in(maximum(source, window), layout)


@kernel("AvgPool", "AvgPool3D")
def avg_pool(node: Node, x: Array) -> Array:
    """Return the mean of each window without padding."""
    layout = layout_of(node)
    source = channels_last(x, layout)
    window = _window(node, source, node.attr_ints("ksize"), node.attr_ints("strides"), layout)
    return channels_as_in(average(source, window), layout)


@shape_fn("MaxPool", "MaxPool3D", "AvgPool", "AvgPool3D")
def pool_shape(args: ShapeArgs) -> OutputShapes:
    """Return the image's shape with a result for each window."""
    return [pooled_shape(args)]


@flop_rule("MaxPool", "MaxPool3D", "AvgPool", "AvgPool3D")
def pool_flops(sizes: Sizes) -> float:
    """Count one operation for each element of each window."""
    return sizes.output_elements() * math.prod(sizes.node.attr_ints("ksize"))


flop_rule("MaxPoolV2")(depends_on_values)


@shape_fn("MaxPoolV2")
def max_pool_v2_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of ``MaxPool``; unknown rank if the window or its strides are unknown."""
    sizes, strides = args.integers(1), args.integers(2)
    shape = with_rank(args.shapes[0], 4)
    if sizes is None or strides is None or len(sizes) != 4 or len(strides) != 4:
        return [None]
    return [pooled_sizes(args.node, shape, sizes, strides)]


def _deepest(x: Array, size: Sequence[int], strides: Sequence[int]) -> Array:
    """Return the maximum of every ``size[-1]`` neighboring channels, as in a maxout network.

    The windows cover one pixel, do not overlap, and fill the channels, as required by TensorFlow's
    kernel:
    https://github.com/tensorflow/tensorflow/blob/v1.15.0/tensorflow/core/kernels/pooling_ops_common.cc
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


shape_fn("MaxPoolGrad")(input_with_rank(4))


@shape_fn("AvgPoolGrad")
def avg_pool_grad_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape that the first input holds."""
    return [with_rank(args.as_shape(0), 4)]


# Operations for an element of a window, and the bytes of its value, its index, and both.
_COST, _HELD = 512, 24


@kernel("MaxPoolWithArgmax", flops=pool_flops)
def max_pool_with_argmax(node: Node, x: Array) -> tuple[Array, Array]:
    """Return the maximum of each window, and its index in the flattened image (or batch)."""
    if x.ndim != 4:
        message = "four axes are needed"
        raise ValueError(message)
    window = _window(node, x, node.attr_ints("ksize"), node.attr_ints("strides"), NHWC)
    positions = window.positions(x.shape[1:3])
    held = len(x) * math.prod(positions) * math.prod(window.size) * x.shape[-1]
    spend(_COST * held, "the window")
    check_bytes(_HELD * held, "all that the windows hold")
    numbers = np.arange(x[:1].size, dtype=np.int64).reshape(1, *x.shape[1:])
    if node.attr_bool("include_batch_in_index", False):
        numbers = numbers + np.arange(len(x)).reshape(-1, 1, 1, 1) * x[:1].size
    numbers = np.broadcast_to(numbers, x.shape)
    whole = whole_tile(x, window)
    shape = (len(x), *positions, -1, x.shape[-1])
    values = _windows(padded_rows(x, window, whole, lowest(x)), window, positions).reshape(shape)
    places = _windows(padded_rows(numbers, window, whole, -1), window, positions).reshape(shape)
    # Padding equals the lowest element, so ties must favor elements.
    best = np.argmax(np.where(places >= 0, values, lowest(x)), axis=-2)
    first = np.argmax(places >= 0, axis=-2)
    at = np.where(np.take_along_axis(places, best[..., None, :], -2)[..., 0, :] < 0, first, best)
    kind = numpy_attr(node, "Targmax", DType.INT64)
    indices = np.take_along_axis(places, at[..., None, :], axis=-2)[..., 0, :]
    chosen = np.take_along_axis(values, at[..., None, :], axis=-2)[..., 0, :]
    return chosen, indices.astype(kind)


@shape_fn("MaxPoolWithArgmax")
def pool_with_argmax_shape(args: ShapeArgs) -> OutputShapes:
    """Return the image's shape with a result for each window, twice."""
    return [pooled_shape(args)] * 2


def _windows(source: Array, window: Window, positions: tuple[int, ...]) -> Array:
    bare = Window(window.size, window.strides, window.dilations, ((0, 0),) * len(positions))
    tile = Tile(slice(0, len(source)), slice(0, positions[0]))
    return patches(source, bare, tile, positions)


# With smaller tiles, threads would wait longer than they compute.
_TILE_BYTES = 1 << 21


# Number of output elements for which waking a thread pays off.
_LEAST_WORK = 1 << 16


# Operations for comparing two elements.
_AXIS_COST = 16


def maximum(x: Array, window: Window) -> Array:
    """Return the maximum of each window."""
    return _pooled(x, window, lowest(x), np.maximum)


def average(x: Array, window: Window) -> Array:
    """Return the mean of each window without padding."""
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    counts: Array = reduce(np.multiply.outer, _counts(window, x.shape[1:-1]))
    divisors = counts.astype(wide.dtype)[..., np.newaxis]
    total = _pooled(wide, window, 0, np.add)
    np.divide(total, divisors, out=total)
    return total.astype(x.dtype, copy=False)


def _pooled(x: Array, window: Window, padding: float, combine: np.ufunc) -> Array:
    positions = window.positions(x.shape[1:-1])
    out = allocated((x.shape[0], *positions, x.shape[-1]), x.dtype)
    _check_work(x, window, positions)

    def work(tile: Tile) -> None:
        source = padded_rows(x, window, tile, padding)
        rows = tile.rows.stop - tile.rows.start
        _along_axes(source, window, (rows, *positions[1:]), combine, tile.of(out))

    if out.size:
        footprint = x.shape[-1] * x.itemsize * math.prod(window.strides)
        shares = min(threads(), out.size // _LEAST_WORK)
        for_each(work, tiles(out.shape, footprint, _TILE_BYTES, shares))
    return out


def _check_work(x: Array, window: Window, positions: tuple[int, ...]) -> None:
    """Raise an error for windows that take too long: each tap of each axis is a pass."""
    # One axis may be processed before another is reduced.
    along = zip(x.shape[1:-1], window.pads, positions, strict=True)
    reached = [max(extent + sum(pads), count) for extent, pads, count in along]
    lines = len(x) * x.shape[-1] * math.prod(reached)
    for size, count, extent in zip(window.size, positions, reached, strict=True):
        each = lines // max(extent, 1) * count
        spend(size * (_AXIS_COST * each + STEP * positions[0]), f"a window of {size}")


def _along_axes(
    x: Array, window: Window, positions: tuple[int, ...], combine: np.ufunc, out: Array
) -> None:
    """Combine the elements of each window along one axis after the other."""
    # Axes with strides only come first: the last one writes to the output.
    order = sorted(range(len(positions)), key=lambda axis: window.size[axis] > 1)
    for axis in order:
        size, stride, count = window.size[axis], window.strides[axis], positions[axis]
        taps = [x[_line(axis + 1, tap, stride, count)] for tap in range(size)]
        x = taps[0]
        if size > 1:
            x = np.asarray(combine(x, taps[1], out=out if axis == order[-1] else None))
        for tap in taps[2:]:
            combine(x, tap, out=x)
    if window.size[order[-1]] == 1:
        out[...] = x


def _line(axis: int, start: int, stride: int, count: int) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(start, start + (count - 1) * stride + 1, stride))


def _counts(window: Window, extents: tuple[int, ...]) -> list[Array]:
    """Return the number of elements without padding that each position covers, for each axis."""
    counts = []
    for extent, size, stride, (before, _), count in zip(
        extents,
        window.size,
        window.strides,
        window.pads,
        window.positions(extents),
        strict=True,
    ):
        start = np.arange(count) * stride - before
        counts.append(np.minimum(start + size, extent) - np.maximum(start, 0))
    return counts


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
