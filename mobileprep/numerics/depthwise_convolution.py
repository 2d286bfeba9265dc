"""Convolution of each channel with its own filters."""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mobileprep.core.limits import spend_products
from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import allocated, check_bytes
from mobileprep.numerics.matrix_products import LEAST_WORK
from mobileprep.numerics.parallel import for_each, threads
from mobileprep.numerics.tiles import Finish, Tile, tiles
from mobileprep.numerics.windows import Window, reach

# Of input: with what becomes of it, it stays in a core's own cache.
_TILE_BYTES = 1 << 20
# Elements of a vector that stays in the innermost cache together with its taps.
_LINE = 4096
# Channels that make a vector long enough by themselves.
_MANY_CHANNELS = 256
# A multiplication here takes some times as long as one in a matrix product.
_COST = 12
# And with few channels that lie apart.
_MOST_COST = 64

_Parts = tuple[tuple[slice, slice], ...]


def convolve_depthwise(
    x: Array, filters: Array, window: Window, finish: Finish | None = None, least: int = 0
) -> Array:
    """The convolution of each channel with its own filters.

    Args:
        x: [batch, height, width, channels].
        filters: [height, width, channels, multiplier].
        window: how the filters slide.
        finish: called for each tile.
        least: how many tiles to make at least, where what finishes them depends on how many there
            are; 0 for as many as threads need.

    Returns:
        [batch, positions, positions, channels * multiplier].

    Raises:
        ValueError: the channels do not fit the filters.
    """
    channels, multiplier = filters.shape[2:]
    if x.shape[-1] != channels:
        message = f"{x.shape[-1]} channels do not fit filters for {channels}"
        raise ValueError(message)
    positions = window.positions(x.shape[1:-1])
    out = allocated((x.shape[0], *positions, channels * multiplier), x.dtype)
    spend_products(_MOST_COST * out.size * math.prod(window.size), x.dtype)
    if not out.size:
        return out
    if multiplier > 1:
        check_bytes(x.nbytes * multiplier, "the input, once for each filter of a channel,")
        x = np.repeat(x, multiplier, axis=-1)
    columns = _columns(positions[1], channels * multiplier, window.strides[1])
    check_bytes(filters.nbytes * columns, "the filters, once for each column,")
    taps = np.tile(filters.reshape(*filters.shape[:2], -1), (1, 1, columns))
    shares = min(threads(), _COST * out.size * math.prod(window.size) // LEAST_WORK)
    footprint = out.shape[-1] * out.itemsize * math.prod(window.strides)
    parts = tiles(out.shape, footprint, _TILE_BYTES, least or shares)
    spaces = threading.local()

    def work(tile: Tile) -> None:
        space = getattr(spaces, "own", None)
        if space is None:
            space = spaces.own = _Space.of(x, window, parts[0], columns)
        target = tile.of(out)
        into = target.reshape(*target.shape[:2], -1, taps.shape[-1])
        # One pass over memory a tap: einsum multiplies and adds in one, ufuncs would take two.
        np.einsum("nhlijx,ijx->nhlx", space.filled(x, tile), taps, out=into)
        if finish is not None:
            finish(target, tile)

    for_each(work, parts)
    return out


@lru_cache(maxsize=256)
def _columns(columns: int, channels: int, stride: int) -> int:
    """How many adjacent positions of a row to treat as one long vector."""
    if stride > 1 and not _apart(channels, stride):
        return 1
    fitting = [n for n in range(1, columns + 1) if columns % n == 0 and n * channels <= _LINE]
    return max(fitting, default=1)


def _apart(channels: int, stride: int) -> bool:
    """Whether to put what windows step over aside, so that positions read adjacent elements."""
    return stride > 1 and channels < _MANY_CHANNELS


@dataclass(frozen=True, slots=True)
class _Space:
    """The input of one tile after another, padded, in work space that stays in the cache.

    Positions that are adjacent should read elements that are adjacent. Where the window steps over
    columns of few channels, the elements that each of its columns meets are put side by side.

    Args:
        window: how the filters slide.
        buffer: [images, rows, planes, columns, channels], zero in columns that no input fills; a
            plane for each column of the window where they are apart, else one.
        lines: what windows cover, a view of the buffer: [images, rows, lines, height, width,
            elements of a line].
        parts: for each plane the columns that are filled, and with which of the input.
    """

    window: Window
    buffer: Array
    lines: Array
    parts: _Parts

    @classmethod
    def of(cls, x: Array, window: Window, largest: Tile, columns: int) -> _Space:
        """Work space for an input's tiles.

        Args:
            x: the input, [batch, height, width, channels].
            window: how the filters slide.
            largest: a tile that is as large as any.
            columns: adjacent positions that a line is made of.
        """
        width = window.positions(x.shape[1:-1])[1]
        images = largest.images.stop - largest.images.start
        rows = largest.rows.stop - largest.rows.start
        taken = (rows - 1) * window.strides[0] + reach(window.size[0], window.dilations[0])
        apart = _apart(x.shape[-1], window.strides[1])
        step = 1 if apart else window.strides[1]
        held = width
        if not apart:
            held = (width - 1) * step + reach(window.size[1], window.dilations[1])
        parts = _split(x.shape[2], window, held) if apart else _whole(x.shape[2], window, held)
        buffer = allocated((images, taken, len(parts), held, x.shape[-1]), x.dtype)
        for number, (place, _) in enumerate(parts):
            buffer[:, :, number, : place.start] = 0
            buffer[:, :, number, place.stop :] = 0
        image, row, plane, column, element = buffer.strides
        next_tap = plane if apart else column * window.dilations[1]
        strides = (
            row * window.strides[0],
            column * columns * step,
            row * window.dilations[0],
            next_tap,
        )
        shape = (images, rows, width // columns, *window.size, columns * x.shape[-1])
        lines = as_strided(buffer, shape, (image, *strides, element), writeable=False)
        return cls(window, buffer, lines, parts)

    def filled(self, x: Array, tile: Tile) -> Array:
        """The lines of a tile: [images, rows, lines, height, width, elements]."""
        stride, before = self.window.strides[0], self.window.pads[0][0]
        first = tile.rows.start * stride - before
        end = (tile.rows.stop - 1) * stride - before
        end += reach(self.window.size[0], self.window.dilations[0])
        low = min(max(first, 0), x.shape[1])
        high = max(min(end, x.shape[1]), low)
        images, rows = tile.images.stop - tile.images.start, tile.rows.stop - tile.rows.start
        space: Any = self.buffer[:images]
        space[:, : low - first] = 0
        space[:, high - first : end - first] = 0
        source, inside = x[tile.images, low:high], space[:, low - first : high - first]
        for plane, (place, taken) in enumerate(self.parts):
            inside[:, :, plane, place] = source[:, :, taken]
        return self.lines[:images, :rows]


def _whole(extent: int, window: Window, held: int) -> _Parts:
    """Where the columns of an input go, as they are: columns there, and columns of the input."""
    low = min(window.pads[1][0], held)
    high = min(low + extent, held)
    return ((slice(low, high), slice(0, high - low)),)


def _split(extent: int, window: Window, held: int) -> _Parts:
    """The same for each column of the window: what it meets at all positions of a row."""
    stride, found = window.strides[1], []
    for tap in range(window.size[1]):
        first = tap * window.dilations[1] - window.pads[1][0]
        low = min(max(-(first // stride), 0), held)
        high = max(min((extent - 1 - first) // stride + 1, held), low)
        start = first + low * stride
        found.append((slice(low, high), slice(start, start + (high - low) * stride, stride)))
    return tuple(found)
