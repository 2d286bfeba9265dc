"""Transposed convolution: the gradient of a convolution with respect to its input."""

from __future__ import annotations

import numpy as np

from mobileprep.core.limits import STEP, spend
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import check_allocation
from mobileprep.numerics.matrix_products import multiply
from mobileprep.numerics.windows import Window, reach

# Products of one image's rows that are held at once.
_SCRATCH_BYTES = 4 << 20
# Operations that a product takes with the sum after it.
_COST = 4


def convolve_transposed(
    shape: tuple[int, ...], filters: Array, y: Array, window: Window, *, depthwise: bool = False
) -> Array:
    """What a convolution with these filters would have to be given, to first order, to give y.

    Args:
        shape: of the result, [batch, *spatial, channels].
        filters: [*window, channels, filters], of a depthwise convolution [.., multiplier].
        y: [batch, *positions, filters].
        window: how the filters slid over the result.
        depthwise: whether each channel has filters of its own.

    Raises:
        ValueError: the shapes do not belong to one convolution.
    """
    depth, count = filters.shape[-2:]
    made = depth * count if depthwise else count
    positions = window.positions(shape[1:-1])
    if y.shape != (shape[0], *positions, made) or shape[-1] != depth:
        message = f"{list(y.shape)} is not what filters {list(filters.shape)} make of {list(shape)}"
        raise ValueError(message)
    spread = [d + sum(p) for d, p in zip(shape[1:-1], window.pads, strict=True)]
    room = [
        max(d, (n - 1) * s + reach(k, r))
        for d, n, s, k, r in zip(
            spread, positions, window.strides, window.size, window.dilations, strict=True
        )
    ]
    check_allocation((shape[0], *room, depth), y.dtype)
    spend(_COST * y.size * filters[..., 0].size + STEP * _steps(y, filters))
    out = np.zeros((shape[0], *room, depth), dtype=y.dtype)
    add = _add_depthwise if depthwise else _add
    for source, target in zip(y, out, strict=True):
        for rows in _row_parts(source, filters):
            add(target, source[rows], filters, window, rows.start)
    inner = (slice(a, a + d) for d, (a, _) in zip(shape[1:-1], window.pads, strict=True))
    within = (slice(None), *inner)
    return np.ascontiguousarray(out[within])


def _steps(y: Array, filters: Array) -> int:
    """How many sums there are: one for each tap, for each part of an image."""
    return len(y) * len(_row_parts(y[0], filters)) * filters[..., 0, 0].size if len(y) else 0


def _row_parts(source: Array, filters: Array) -> list[slice]:
    each = source[:1].size // max(source.shape[-1], 1) * filters[..., 0].size * filters.itemsize
    step = max(_SCRATCH_BYTES // max(each, 1), 1)
    return [slice(i, min(i + step, len(source))) for i in range(0, len(source), step)]


def _add(target: Array, rows: Array, filters: Array, window: Window, first: int) -> None:
    """Add what some rows of positions contribute: one product, then a sum for each tap."""
    weights = filters.reshape(-1, filters.shape[-1])
    flat = np.ascontiguousarray(rows).reshape(-1, rows.shape[-1])
    parts = np.empty((len(flat), len(weights)), dtype=rows.dtype)
    multiply(flat, weights.T, parts)
    parts = parts.reshape(*rows.shape[:-1], *window.size, filters.shape[-2])
    for tap in np.ndindex(*window.size):
        place = _places(tap, rows.shape[:-1], window, first)
        target[place] += parts[(slice(None),) * (rows.ndim - 1) + tap]


def _add_depthwise(target: Array, rows: Array, filters: Array, window: Window, first: int) -> None:
    split = rows.reshape(*rows.shape[:-1], *filters.shape[-2:])
    for tap in np.ndindex(*window.size):
        place = _places(tap, rows.shape[:-1], window, first)
        target[place] += np.einsum("...cm,cm->...c", split, filters[tap])


def _places(
    tap: tuple[int, ...], positions: tuple[int, ...], window: Window, first: int
) -> tuple[slice, ...]:
    """Where one tap of each position falls; ``first`` is the number of the first row."""
    starts = [t * d for t, d in zip(tap, window.dilations, strict=True)]
    starts[0] += first * window.strides[0]
    return tuple(
        slice(a, a + (n - 1) * s + 1, s)
        for a, n, s in zip(starts, positions, window.strides, strict=True)
    )
