"""Sliding windows over spatial axes: padding, output sizes, tiles, and covered elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from numpy.lib.stride_tricks import as_strided

from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.allocation import allocated

NHWC = "NHWC"
_LAYOUTS = {
    "NHWC": NHWC,
    "NCHW": "NCHW",
    "NDHWC": NHWC,
    "NCDHW": "NCHW",
    "NWC": NHWC,
    "NCW": "NCHW",
}


# More elements along an axis than any window has: each takes a step.
_LARGEST = 1 << 20


class Window(Struct, frozen=True):
    """A sliding window, with an entry for each spatial axis.

    Args:
        size: number of elements that the window covers.
        strides: steps between positions.
        dilations: distances between covered elements.
        pads: padding before and after each axis.
    """

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]

    def positions(self, extents: Sequence[int]) -> tuple[int, ...]:
        """Return the number of positions of the window along each axis."""
        counts = []
        for extent, size, stride, dilation, pads in zip(
            extents, self.size, self.strides, self.dilations, self.pads, strict=True
        ):
            room = extent + sum(pads) - reach(size, dilation)
            if room < 0 < extent:
                message = f"a window of {size} does not fit into {extent}"
                raise ValueError(message)
            counts.append(max(room // stride + 1, 0))
        return tuple(counts)


def reach(size: int, dilation: int) -> int:
    """Return the distance from a window's first to its last element, both included."""
    return (size - 1) * dilation + 1


def layout_of(node: Node) -> str:
    """Return the node's data format, as "NHWC" or "NCHW" for any number of spatial axes."""
    data_format = node.attr_str("data_format", NHWC)
    if data_format not in _LAYOUTS:
        message = f"the data format {data_format!r} is not supported"
        raise ValueError(message)
    return _LAYOUTS[data_format]


def spatial(values: Sequence[int], layout: str) -> tuple[int, ...]:
    """Return the spatial entries of a list over all axes."""
    batch, channels = values[0], values[-1] if layout == NHWC else values[1]
    if batch != 1 or channels != 1:
        message = f"{list(values)} steps along batch or channels"
        raise ValueError(message)
    return tuple(values[1:-1] if layout == NHWC else values[2:])


def make_window(
    node: Node,
    extents: Sequence[int],
    size: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Window:
    """Create a window with the padding of the node's attributes."""
    if min((*size, *strides, *dilations)) < 1 or max(size) > _LARGEST:
        message = f"window {list(size)}, strides {list(strides)}, dilations {list(dilations)}"
        raise ValueError(message)
    scheme = node.attr_str("padding")
    if scheme == "SAME":
        pads = tuple(_same(*entry) for entry in zip(extents, size, strides, dilations, strict=True))
    elif scheme == "VALID":
        pads = ((0, 0),) * len(extents)
    elif scheme == "EXPLICIT":
        pads = _explicit(node)
    else:
        message = f"unknown padding {scheme!r}"
        raise ValueError(message)
    return Window(tuple(size), tuple(strides), tuple(dilations), pads)


def _same(extent: int, size: int, stride: int, dilation: int) -> tuple[int, int]:
    """Pad to one position for each stride; an odd element of padding goes to the end."""
    missing = max((-(-extent // stride) - 1) * stride + reach(size, dilation) - extent, 0)
    return missing // 2, missing - missing // 2


def _explicit(node: Node) -> tuple[tuple[int, int], ...]:
    flat = node.attr_ints("explicit_paddings", ())
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    layout = layout_of(node)
    if len(pairs) < 3 or any(min(p) < 0 for p in pairs):
        message = f"explicit paddings {list(flat)} do not fit"
        raise ValueError(message)
    outside = (pairs[0], pairs[-1] if layout == NHWC else pairs[1])
    if outside != ((0, 0), (0, 0)):
        message = "batch and channels cannot be padded"
        raise ValueError(message)
    return tuple(pairs[1:-1] if layout == NHWC else pairs[2:])


def attr_window(
    node: Node,
    extents: Sequence[int],
    size: Sequence[int],
    layout: str = NHWC,
    dilations: Sequence[int] | None = None,
) -> Window:
    """Create a window with the strides and padding of the node's attributes.

    Args:
        dilations: over all axes; by default those of the attribute ``dilations``.
    """
    if dilations is None:
        ones = (1,) * (len(extents) + 2)
        dilations = node.attr_ints("dilations", ones) or ones
    return make_window(
        node,
        extents,
        size,
        spatial(node.attr_ints("strides"), layout),
        spatial(dilations, layout),
    )


def filter_window(node: Node, x: Array, filters: Array, layout: str = NHWC) -> Window:
    """Return the window of a convolution's filters over a channels-last input."""
    return attr_window(node, x.shape[1:-1], filters.shape[:-2], layout)


class Tile(Struct, frozen=True):
    """A range of rows in a range of images of an output."""

    images: slice
    rows: slice

    def of(self, out: Array) -> Array:
        """Return the tile's view of a tensor [batch, rows, ...]."""
        return out[self.images, self.rows]


def whole_tile(x: Array, window: Window) -> Tile:
    """Return the tile of all positions of a window over an input [batch, rows, columns, ...]."""
    return Tile(slice(0, len(x)), slice(0, window.positions(x.shape[1:-1])[0]))


def tiles(shape: Sequence[int], footprint: int, limit: int, least: int) -> list[Tile]:
    """Split an output along batch, or along batch and rows.

    Args:
        footprint: bytes of scratch memory for each position (an element of all axes but the last).
        limit: approximate maximum of bytes for a tile.
        least: minimum number of tiles.
    """
    batch, rows = shape[:2]
    count = max(-(-math.prod(shape[:-1]) * footprint // limit), least, 1)
    if batch >= count:
        return [Tile(images, slice(0, rows)) for images in cuts(batch, count)]
    across = cuts(rows, -(-count // batch))
    return [Tile(slice(i, i + 1), part) for i in range(batch) for part in across]


def cuts(length: int, count: int) -> list[slice]:
    """Split a range into at most ``count`` parts whose lengths differ by at most one."""
    parts = max(min(count, length), 1)
    ends = [-(-i * length // parts) for i in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(ends)] if length else []


def padded_rows(x: Array, window: Window, tile: Tile, value: float = 0) -> Array:
    """Return the images and rows that a tile's windows reach, with padding around them.

    A view of x if there is no padding. Padding each tile separately avoids a copy of the input.
    """
    stride, before = window.strides[0], window.pads[0][0]
    first = tile.rows.start * stride - before
    end = (tile.rows.stop - 1) * stride + reach(window.size[0], window.dilations[0]) - before
    low = min(max(first, 0), x.shape[1])
    high = max(min(end, x.shape[1]), low)
    inside: Array = x[tile.images, low:high]
    pads = [(0, 0), (max(low - first, 0), 0), *window.pads[1:], (0, 0)]
    if first == low and end == high and not any(map(sum, pads)):
        return inside
    widths = [d + sum(p) for d, p in zip(x.shape[2:-1], window.pads[1:], strict=True)]
    out = allocated((len(inside), end - first, *widths, x.shape[-1]), x.dtype)
    out[...] = value
    within = tuple(slice(a, a + d) for d, (a, _) in zip(inside.shape, pads, strict=True))
    out[within] = inside
    return out


def patches(x: Array, window: Window, tile: Tile, positions: tuple[int, ...]) -> Array:
    """Return the elements that a tile's windows cover: [images, *positions, *window, channels].

    The result is a read-only view.

    Args:
        positions: number of positions of the window along each axis.
    """
    source = padded_rows(x, window, tile)
    rows = tile.rows.stop - tile.rows.start
    shape = (len(source), rows, *positions[1:], *window.size, x.shape[-1])
    inner = source.strides[1:-1]
    steps = [s * stride for s, stride in zip(inner, window.strides, strict=True)]
    taps = [s * dilation for s, dilation in zip(inner, window.dilations, strict=True)]
    strides = (source.strides[0], *steps, *taps, source.strides[-1])
    return as_strided(source, shape, strides, writeable=False)


def lowest(x: Array) -> float:
    """Return the padding value for maxima over windows."""
    return int(np.iinfo(x.dtype).min) if x.dtype.kind in "iu" else -np.inf
