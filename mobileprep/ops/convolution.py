"""Convolution of channels-last tensors through matrix products."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mobileprep.ir.tensor import Array
from mobileprep.ops.window import Window

# Patches of one tile: small enough for the processor's last cache, large enough for BLAS.
_SCRATCH_BYTES = 4 << 20


def convolve(x: Array, filters: Array, window: Window) -> Array:
    """The convolution (cross-correlation) of a batch with a bank of filters.

    Args:
        x: [batch, *spatial, channels].
        filters: [*window, channels / groups, filters].
        window: how the filters slide.

    Returns:
        [batch, *positions, filters].

    Raises:
        ValueError: the channels do not fit the filters.
    """
    depth, count = filters.shape[-2:]
    channels = x.shape[-1]
    if depth == 0 or channels % depth or count % max(channels // depth, 1):
        message = f"{channels} channels do not fit filters of shape {list(filters.shape)}"
        raise ValueError(message)
    positions = window.positions(x.shape[1:-1])
    groups = channels // depth
    if groups != 1:
        share = count // groups
        parts = [
            convolve(
                x[..., g * depth : (g + 1) * depth],
                filters[..., g * share : (g + 1) * share],
                window,
            )
            for g in range(groups)
        ]
        return np.concatenate(parts, axis=-1)
    out = np.empty((x.shape[0], *positions, count), dtype=x.dtype)
    if out.size:
        _fill(out, x, filters, window)
    return out


def _fill(out: Array, x: Array, filters: Array, window: Window) -> None:
    weights = filters.reshape(-1, filters.shape[-1])
    if math.prod(window.size) == 1 and not any(map(sum, window.pads)):
        if any(s > 1 for s in window.strides):
            kept = (slice(None), *(slice(None, None, s) for s in window.strides))
            x = x[kept]
        rows = x.reshape(-1, x.shape[-1])
        np.matmul(rows, weights, out=out.reshape(len(rows), -1))
        return
    patches = _patches(padded(x, window), window, out.shape[1:-1])
    for part in _tiles(patches):
        rows = patches[part].reshape(-1, len(weights))
        target = out[part]
        np.matmul(rows, weights, out=target.reshape(len(rows), -1))


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


def _tiles(patches: Array) -> Iterator[tuple[slice, ...]]:
    """Cuts along batch, or along batch and rows, that keep a tile's patches in bounds."""
    batch, rows = patches.shape[:2]
    image = patches[:1].nbytes
    if image <= _SCRATCH_BYTES:
        step = max(_SCRATCH_BYTES // max(image, 1), 1)
        yield from ((slice(i, i + step),) for i in range(0, batch, step))
        return
    step = max(_SCRATCH_BYTES // max(image // rows, 1), 1)
    for i in range(batch):
        yield from ((slice(i, i + 1), slice(r, r + step)) for r in range(0, rows, step))


def convolve_depthwise(x: Array, filters: Array, window: Window) -> Array:
    """The convolution of each channel with its own filters.

    Args:
        x: [batch, height, width, channels].
        filters: [height, width, channels, multiplier].
        window: how the filters slide.

    Returns:
        [batch, positions, positions, channels * multiplier].
    """
    channels, multiplier = filters.shape[2:]
    if x.shape[-1] != channels:
        message = f"{x.shape[-1]} channels do not fit filters of shape {list(filters.shape)}"
        raise ValueError(message)
    positions = window.positions(x.shape[1:-1])
    out = np.zeros((x.shape[0], *positions, channels * multiplier), dtype=x.dtype)
    if not out.size:
        return out
    source = padded(x, window)
    if multiplier > 1:
        source = np.repeat(source, multiplier, axis=-1)
    taps = filters.reshape(*filters.shape[:2], -1)
    patches = _patches(source, window, positions)
    for image, target in zip(patches, out, strict=True):
        _add_taps(image, taps, target, merged=window.strides[1] == 1)
    return out


def _add_taps(patches: Array, taps: Array, out: Array, *, merged: bool) -> None:
    """Sum the products of [rows, columns, height, width, channels] with [height, width, channels].

    One pass over memory a tap: einsum multiplies and adds in one, ufuncs would take two.
    """
    rows, columns, height, width, channels = patches.shape
    if not merged:
        np.einsum("hwijc,ijc->hwc", patches, taps, out=out)
        return
    # Adjacent positions are adjacent in memory: treat a row of pixels as one long vector.
    strides = (patches.strides[0], *patches.strides[2:])
    lines = as_strided(patches, (rows, height, width, columns * channels), strides, writeable=False)
    wide = np.tile(taps, (1, 1, columns))
    np.einsum("hijx,ijx->hx", lines, wide, out=out.reshape(rows, -1))
