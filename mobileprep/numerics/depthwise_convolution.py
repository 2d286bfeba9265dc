"""Convolution of each channel with its own filters."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import allocated
from mobileprep.numerics.matrix_products import LEAST_WORK
from mobileprep.numerics.parallel import for_each, threads
from mobileprep.numerics.tiles import Finish, Tile, patches, tiles
from mobileprep.numerics.windows import Window

_TILE_BYTES = 1 << 18
# Elements of a vector that stays in the innermost cache together with its taps.
_LINE = 2048
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
    x = np.ascontiguousarray(x)
    columns = _columns(positions[1], channels * multiplier, window.strides[1])
    taps = np.tile(filters.reshape(*filters.shape[:2], -1), (1, 1, columns))

    def work(tile: Tile) -> None:
        target = tile.of(out)
        lines = _lines(patches(x, window, tile, positions), columns)
        # One pass over memory a tap: einsum multiplies and adds in one, ufuncs would take two.
        into = target.reshape(*target.shape[:2], -1, taps.shape[-1])
        np.einsum("nhlijx,ijx->nhlx", lines, taps, out=into)
        if finish is not None:
            finish(target, tile)

    shares = min(threads(), _COST * out.size * math.prod(window.size) // LEAST_WORK)
    for_each(work, tiles(out, out.shape[-1] * out.itemsize, _TILE_BYTES, shares))
    return out


def _columns(columns: int, channels: int, stride: int) -> int:
    """How many adjacent positions of a row to treat as one long vector."""
    if stride > 1:
        return 1
    fitting = [n for n in range(1, columns + 1) if columns % n == 0 and n * channels <= _LINE]
    return max(fitting, default=1)


def _lines(windows: Array, count: int) -> Array:
    """Windows [batch, rows, columns, height, width, channels] with ``count`` columns merged.

    Columns that are adjacent in memory can be read as if they were more channels.
    """
    batch, rows, columns, height, width, channels = windows.shape
    strides = (*windows.strides[:2], windows.strides[2] * count, *windows.strides[3:])
    shape = (batch, rows, columns // count, height, width, count * channels)
    return as_strided(windows, shape, strides, writeable=False)
