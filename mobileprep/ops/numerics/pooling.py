"""Pooling of channels-last tensors, axis after axis, tile by tile."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from mobileprep.core.limits import STEP, spend
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.allocation import allocated
from mobileprep.ops.numerics.parallel import for_each, threads
from mobileprep.ops.numerics.windows import Tile, Window, lowest, padded_rows, tiles

# With smaller ones threads wait for each other longer than they compute.
_TILE_BYTES = 1 << 21
# Elements of output that are worth waking a thread for.
_LEAST_WORK = 1 << 16
# Operations that comparing two elements takes.
_COST = 16


def maximum(x: Array, window: Window) -> Array:
    """The largest element of each window."""
    return _pooled(x, window, lowest(x), np.maximum)


def average(x: Array, window: Window) -> Array:
    """The mean of each window's elements, padding counted out."""
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
    """Refuse windows that take too long: each axis is a pass for each of its taps."""
    # One axis may be gone over before another is made smaller.
    along = zip(x.shape[1:-1], window.pads, positions, strict=True)
    reached = [max(extent + sum(pads), count) for extent, pads, count in along]
    lines = len(x) * x.shape[-1] * math.prod(reached)
    for size, count, extent in zip(window.size, positions, reached, strict=True):
        each = lines // max(extent, 1) * count
        spend(size * (_COST * each + STEP * positions[0]), f"a window of {size}")


def _along_axes(
    x: Array, window: Window, positions: tuple[int, ...], combine: np.ufunc, out: Array
) -> None:
    """Combine the elements of each window: a box is the product of lines along its axes."""
    # Axes that are only stepped over come first: the last leaves the result where it belongs.
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
    """For each axis, how many elements that are no padding each position covers."""
    found = []
    for extent, size, stride, (before, _), count in zip(
        extents,
        window.size,
        window.strides,
        window.pads,
        window.positions(extents),
        strict=True,
    ):
        start = np.arange(count) * stride - before
        found.append(np.minimum(start + size, extent) - np.maximum(start, 0))
    return found
