"""Convolution of each channel with its own filters."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import allocated
from mobileprep.numerics.matrix_products import LEAST_WORK
from mobileprep.numerics.parallel import for_each, threads
from mobileprep.numerics.tiles import Finish, Tile, tiles
from mobileprep.numerics.windows import Window, reach

# Of input: with what becomes of it, it stays in a core's own cache.
_TILE_BYTES = 1 << 18
# Elements of a vector that stays in the innermost cache together with its taps.
_LINE = 4096
# A multiplication here takes some times as long as one in a matrix product.
_COST = 8


def convolve_depthwise(
    x: Array, filters: Array, window: Window, finish: Finish | None = None
) -> Array:
    """The convolution of each channel with its own filters.

    Args:
        x: [batch, height, width, channels].
        filters: [height, width, channels, multiplier].
        window: how the filters slide.
        finish: called for each tile.

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
    if not out.size:
        return out
    if multiplier > 1:
        x = np.repeat(x, multiplier, axis=-1)
    columns = _columns(positions[1], channels * multiplier)
    taps = np.tile(filters.reshape(*filters.shape[:2], -1), (1, 1, columns))
    shares = min(threads(), _COST * out.size * math.prod(window.size) // LEAST_WORK)
    footprint = out.shape[-1] * out.itemsize * math.prod(window.strides)
    parts = tiles(out, footprint, _TILE_BYTES, shares)
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


def _columns(columns: int, channels: int) -> int:
    """How many adjacent positions of a row to treat as one long vector."""
    fitting = [n for n in range(1, columns + 1) if columns % n == 0 and n * channels <= _LINE]
    return max(fitting, default=1)


@dataclass(frozen=True, slots=True)
class _Space:
    """The input of one tile after another, padded, in work space that stays in the cache.

    Positions that are adjacent read elements that are adjacent. Where the window steps over
    columns, the elements that each of its columns meets are therefore put side by side.

    Args:
        window: how the filters slide.
        buffer: [images, rows, 1 or columns of the window, columns, channels], zero where no input
            comes.
        lines: what windows cover, a view of the buffer: [images, rows, lines, height, width,
            elements of a line].
        parts: for each of the buffer's third axis the columns that are filled, and with which of
            the input.
    """

    window: Window
    buffer: Array
    lines: Array
    parts: tuple[tuple[int, slice, slice], ...]

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
        parts = _parts(x.shape[2], window, width)
        apart = window.strides[1] > 1
        held = width if apart else width - 1 + reach(window.size[1], window.dilations[1])
        planes = window.size[1] if apart else 1
        buffer = allocated((images, taken, planes, held, x.shape[-1]), x.dtype)
        buffer[...] = 0
        image, row, plane, column, element = buffer.strides
        next_tap = plane if apart else column * window.dilations[1]
        strides = (row * window.strides[0], column * columns, row * window.dilations[0], next_tap)
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
        for plane, place, taken in self.parts:
            inside[:, :, plane, place] = source[:, :, taken]
        return self.lines[:images, :rows]


def _parts(extent: int, window: Window, width: int) -> tuple[tuple[int, slice, slice], ...]:
    """Which columns of an input go where: plane, columns there, columns of the input."""
    stride, before = window.strides[1], window.pads[1][0]
    if stride == 1:
        held = width - 1 + reach(window.size[1], window.dilations[1])
        low, high = min(before, held), min(before + extent, held)
        return ((0, slice(low, high), slice(0, high - low)),)
    found = []
    for tap in range(window.size[1]):
        first = tap * window.dilations[1] - before
        low = max(-(first // stride), 0)
        high = min((extent - 1 - first) // stride + 1, width)
        if low < high:
            taken = slice(first + low * stride, first + (high - 1) * stride + 1, stride)
            found.append((tap, slice(low, high), taken))
    return tuple(found)
