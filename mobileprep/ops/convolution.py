"""Convolution of channels-last tensors through matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mobileprep.ir.tensor import Array
from mobileprep.ops.parallel import for_each, threads
from mobileprep.ops.products import FEW_ROWS, LEAST_WORK, multiply
from mobileprep.ops.window import Window

# Patches of one tile: small enough for the processor's last cache, large enough for BLAS.
_PATCH_BYTES = 2 << 20
# Outputs of one tile, so that what finishes them finds them in the cache.
_TILE_BYTES = 1 << 20
_DEPTHWISE_BYTES = 1 << 18
# Elements of a vector that stays in the innermost cache with its taps.
_LINE = 2048

Part = tuple[slice, ...]
Finish = Callable[[Array, Part], None]
"""Called for each tile of the output, as soon as it is computed, with its place; may change it."""


def convolve(x: Array, filters: Array, window: Window, finish: Finish | None = None) -> Array:
    """The convolution (cross-correlation) of a batch with a bank of filters.

    Args:
        x: [batch, *spatial, channels].
        filters: [*window, channels / groups, filters].
        window: how the filters slide.
        finish: called for each tile; not where there are several groups.

    Returns:
        [batch, *positions, filters].

    Raises:
        ValueError: the channels do not fit the filters.
    """
    depth, count = filters.shape[-2:]
    groups = _groups(x.shape[-1], depth, count)
    positions = window.positions(x.shape[1:-1])
    if groups != 1:
        return _by_groups(x, filters, window, groups)
    out = np.empty((x.shape[0], *positions, count), dtype=x.dtype)
    if not out.size:
        return out
    weights = filters.reshape(-1, count)
    if math.prod(window.size) == 1 and not any(map(sum, window.pads)):
        _fill_pointwise(out, x, weights, window.strides, finish)
    else:
        patches = _patches(padded(x, window), window, positions)
        _fill(
            out, patches, weights, finish, tiles(patches, _PATCH_BYTES, _shares(out, len(weights)))
        )
    return out


def _groups(channels: int, depth: int, count: int) -> int:
    groups = channels // depth if depth else 0
    if groups == 0 or groups * depth != channels or count % groups:
        message = f"{channels} channels do not fit {count} filters of {depth} channels"
        raise ValueError(message)
    return groups


def _by_groups(x: Array, filters: Array, window: Window, groups: int) -> Array:
    depth, share = filters.shape[-2], filters.shape[-1] // groups
    parts = [
        convolve(
            x[..., g * depth : (g + 1) * depth], filters[..., g * share : (g + 1) * share], window
        )
        for g in range(groups)
    ]
    return np.concatenate(parts, axis=-1)


def _fill_pointwise(
    out: Array, x: Array, weights: Array, strides: tuple[int, ...], finish: Finish | None
) -> None:
    """Filters of one element: the input is the matrix of patches."""
    if any(s > 1 for s in strides):
        kept = (slice(None), *(slice(None, None, s) for s in strides))
        x = x[kept]
    _fill(out, x, weights, finish, tiles(out, _TILE_BYTES, _shares(out, len(weights))))


def _fill(
    out: Array, patches: Array, weights: Array, finish: Finish | None, parts: list[Part]
) -> None:
    """Multiply patches, of which each tile is copied into a matrix, with the filters."""

    def work(part: Part) -> None:
        target = out[part]
        rows = patches[part].reshape(-1, len(weights))
        multiply(rows, weights, target.reshape(len(rows), -1))
        if finish is not None:
            finish(target, part)

    for_each(work, parts)


def padded(x: Array, window: Window, value: float = 0) -> Array:
    """x with the window's padding around its spatial axes."""
    if not any(map(sum, window.pads)):
        return x
    shape = [d + a + b for d, (a, b) in zip(x.shape[1:-1], window.pads, strict=True)]
    out = np.full((x.shape[0], *shape, x.shape[-1]), value, dtype=x.dtype)
    inner = (slice(a, a + d) for d, (a, _) in zip(x.shape[1:-1], window.pads, strict=True))
    within = (slice(None), *inner)
    out[within] = x
    return out


def _patches(x: Array, window: Window, positions: tuple[int, ...]) -> Array:
    """A view [batch, *positions, *window, channels] of a padded input."""
    inner = x.strides[1:-1]
    steps = [s * stride for s, stride in zip(inner, window.strides, strict=True)]
    taps = [s * dilation for s, dilation in zip(inner, window.dilations, strict=True)]
    shape = (x.shape[0], *positions, *window.size, x.shape[-1])
    strides = (x.strides[0], *steps, *taps, x.strides[-1])
    return as_strided(x, shape, strides, writeable=False)


def tiles(array: Array, limit: int, least: int) -> list[Part]:
    """Cuts along batch, or along batch and rows.

    Args:
        array: what to cut, [batch, rows, ...].
        limit: about how many bytes of it a part may take.
        least: how many parts to make at least, if there are as many rows.
    """
    batch, rows = array.shape[:2]
    # Of a view that repeats elements too: what it takes once it is copied.
    size = math.prod(array.shape) * array.itemsize
    count = max(-(-size // limit), least, 1)
    if batch >= count:
        return [(part,) for part in cuts(batch, count)]
    across = cuts(rows, -(-count // batch))
    return [(slice(i, i + 1), part) for i in range(batch) for part in across]


def _shares(out: Array, depth: int) -> int:
    """Into how many parts a product of ``depth`` multiplications an element is worth cutting."""
    positions = math.prod(out.shape[:-1])
    return min(threads(), out.size * depth // LEAST_WORK, positions // FEW_ROWS)


def cuts(length: int, count: int) -> list[slice]:
    """A range cut into at most ``count`` parts of nearly equal length."""
    step = max(-(-length // count), 1)
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


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
    out = np.empty((x.shape[0], *positions, channels * multiplier), dtype=x.dtype)
    if not out.size:
        return out
    source = padded(x, window)
    if multiplier > 1:
        source = np.repeat(source, multiplier, axis=-1)
    taps = filters.reshape(*filters.shape[:2], -1)
    patches = _patches(np.ascontiguousarray(source), window, positions)
    patches = _lines(patches, _columns(positions[1], channels * multiplier, window.strides[1]))
    taps = np.tile(taps, (1, 1, patches.shape[-1] // taps.shape[-1]))

    def work(part: Part) -> None:
        # One pass over memory a tap: einsum multiplies and adds in one, ufuncs would take two.
        target = out[part]
        lines = target.reshape(*target.shape[:2], -1, taps.shape[-1])
        np.einsum("nhlijx,ijx->nhlx", patches[part], taps, out=lines)
        if finish is not None:
            finish(target, part)

    # Not through BLAS: a multiplication takes some ten times as long.
    shares = min(threads(), 8 * out.size * math.prod(window.size) // LEAST_WORK)
    for_each(work, tiles(out, _DEPTHWISE_BYTES, shares))
    return out


def _columns(columns: int, channels: int, stride: int) -> int:
    """How many adjacent positions of a row to treat as one long vector."""
    if stride > 1:
        return 1
    fitting = [n for n in range(1, columns + 1) if columns % n == 0 and n * channels <= _LINE]
    return max(fitting, default=1)


def _lines(patches: Array, count: int) -> Array:
    """Patches [batch, rows, columns, height, width, channels] with ``count`` columns merged.

    Columns that are adjacent in memory can be read as if they were more channels.
    """
    batch, rows, columns, height, width, channels = patches.shape
    strides = (*patches.strides[:2], patches.strides[2] * count, *patches.strides[3:])
    shape = (batch, rows, columns // count, height, width, count * channels)
    return as_strided(patches, shape, strides, writeable=False)
