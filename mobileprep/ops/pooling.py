"""Pooling of channels-last tensors, axis after axis."""

from __future__ import annotations

import numpy as np

from mobileprep.ir.tensor import Array
from mobileprep.ops.convolution import padded
from mobileprep.ops.window import Window


def maximum(x: Array, window: Window) -> Array:
    """The largest element of each window.

    Args:
        x: [batch, *spatial, channels].
        window: how the window slides; padding never wins.

    Returns:
        [batch, *positions, channels].
    """
    if x.dtype.kind in "iu":
        lowest: float = int(np.iinfo(x.dtype).min)
    else:
        lowest = -np.inf
    return _along_axes(padded(x, window, lowest), window, x.shape, np.maximum)


def average(x: Array, window: Window) -> Array:
    """The mean of each window's elements, padding counted out; arguments as for ``maximum``."""
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    total = _along_axes(padded(wide, window), window, x.shape, np.add)
    for axis, count in enumerate(_counts(window, x.shape[1:-1]), start=1):
        total = np.divide(total, count.astype(wide.dtype).reshape(-1, *[1] * (x.ndim - 1 - axis)))
    return total.astype(x.dtype, copy=False)


def _along_axes(x: Array, window: Window, shape: tuple[int, ...], combine: np.ufunc) -> Array:
    """Combine the elements of each window: a box is the product of lines along its axes."""
    positions = window.positions(shape[1:-1])
    for axis, (size, stride, count) in enumerate(
        zip(window.size, window.strides, positions, strict=True), start=1
    ):
        taps = [x[_line(axis, tap, stride, count)] for tap in range(size)]
        if size == 1:
            x = taps[0]
            continue
        out = combine(taps[0], taps[1])
        for tap in taps[2:]:
            combine(out, tap, out=out)
        x = out
    return x


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
