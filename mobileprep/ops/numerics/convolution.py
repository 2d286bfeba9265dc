"""Convolutions of channels-last tensors through matrix products."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mobileprep.core.limits import STEP, spend, spend_products
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.allocation import allocated, check_allocation, check_bytes
from mobileprep.ops.numerics.parallel import LEAST_WORK, for_each, multiply, parts_of, threads
from mobileprep.ops.numerics.windows import Tile, Window, padded_rows, patches, reach, tiles

# Bytes of patches of one tile: small enough for the last-level cache, large enough for BLAS.
_PATCH_BYTES = 2 << 20
# Bytes of outputs of one tile for windows of single elements.
_OUTPUT_BYTES = 1 << 20
# Number of positions of one tile for which packing the filters, which BLAS does for each product,
# pays off.
_ROWS = 128
# Cost of copying an element into a patch, in multiplications.
_COPIED = 16
# Bytes of input of one tile of a depthwise convolution.
_TILE_BYTES = 1 << 20
# Number of elements of a row to multiply with its taps at once.
_LINE = 4096
# Cost of a multiplication outside of a matrix product, relative to one inside: usual, maximum.
_COST, _MOST_COST = 12, 64
# Bytes of products of one image's rows that a transposed convolution holds at once.
_SCRATCH_BYTES = 4 << 20
# Operations for such a product and the following sum.
_TRANSPOSED_COST = 4


def convolve(x: Array, filters: Array, window: Window) -> Array:
    """Convolve (cross-correlate) a batch with a bank of filters."""
    depth, count = filters.shape[-2:]
    groups = _groups(x.shape[-1], depth, count)
    positions = window.positions(x.shape[1:-1])
    if groups != 1:
        return _by_groups(x, filters, window, groups)
    out = allocated((x.shape[0], *positions, count), x.dtype)
    taps = math.prod(filters.shape[:-1])
    spend_products(math.prod(out.shape[:-1]) * taps * (count + _COPIED), x.dtype)
    if not out.size:
        return out
    weights = filters.reshape(-1, count)
    parts = _product_tiles(out, window, len(weights))
    product = multiply if len(parts) == 1 else np.matmul
    single = math.prod(window.size) == 1
    adjacent = single and set(window.strides) == {1} and not any(map(sum, window.pads))

    def work(tile: Tile) -> None:
        target = tile.of(out)
        elements = tile.of(x) if adjacent else patches(x, window, tile, positions)
        rows = elements.reshape(-1, len(weights))
        product(rows, weights, out=target.reshape(len(rows), -1))

    for_each(work, parts)
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


def _product_tiles(out: Array, window: Window, summed: int) -> list[Tile]:
    """Return the tiles of an output whose elements are sums of ``summed`` products.

    They do not depend on the number of threads, since they affect the last bits of a product.
    """
    filters = out.shape[-1]
    if math.prod(window.size) == 1:
        footprint = filters * out.itemsize
        limit = max(_OUTPUT_BYTES, 2 * summed * filters * out.itemsize)
    else:
        footprint, limit = summed * out.itemsize, _PATCH_BYTES
    # With fewer positions than filters, the product itself is split between the filters.
    count = math.prod(out.shape[:-1])
    shares = min(parts_of(count * filters * summed), max(count // _ROWS, 2))
    return tiles(out.shape, footprint, limit, shares if count > filters else 1)


def convolve_depthwise(x: Array, filters: Array, window: Window) -> Array:
    """Convolve each channel with its own filters.

    Returns:
        [batch, positions, positions, channels * multiplier].
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
    columns = _columns(positions[1], channels * multiplier) if window.strides[1] == 1 else 1
    check_bytes(filters.nbytes * columns, "the filters, once for each column,")
    taps = np.tile(filters.reshape(*filters.shape[:2], -1), (1, 1, columns))
    shares = min(threads(), _COST * out.size * math.prod(window.size) // LEAST_WORK)
    footprint = out.shape[-1] * out.itemsize * math.prod(window.strides)

    def work(tile: Tile) -> None:
        target = tile.of(out)
        into = target.reshape(*target.shape[:2], -1, taps.shape[-1])
        lines = _lines(np.ascontiguousarray(padded_rows(x, window, tile)), window, into, columns)
        # One pass over memory for each tap: einsum fuses multiplication and addition.
        np.einsum("nhlijx,ijx->nhlx", lines, taps, out=into)

    for_each(work, tiles(out.shape, footprint, _TILE_BYTES, shares))
    return out


def _columns(columns: int, channels: int) -> int:
    """Return the number of adjacent positions of a row to treat as one long vector."""
    fitting = [n for n in range(1, columns + 1) if columns % n == 0 and n * channels <= _LINE]
    return max(fitting, default=1)


def _lines(source: Array, window: Window, into: Array, columns: int) -> Array:
    """Return a view of padded rows: [images, rows, lines, height, width, elements of a line]."""
    image, row, column, element = source.strides
    steps = (row * window.strides[0], column * columns * window.strides[1])
    next_taps = (row * window.dilations[0], column * window.dilations[1])
    shape = (*into.shape[:3], *window.size, into.shape[-1])
    return as_strided(source, shape, (image, *steps, *next_taps, element), writeable=False)


def convolve_transposed(
    shape: tuple[int, ...], filters: Array, y: Array, window: Window, *, depthwise: bool = False
) -> Array:
    """Compute the transposed convolution (input gradient) of y.

    Args:
        shape: of the result.
    """
    depth, count = filters.shape[-2:]
    channels = depth * count if depthwise else count
    positions = window.positions(shape[1:-1])
    if y.shape != (shape[0], *positions, channels) or shape[-1] != depth:
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
    spend(_TRANSPOSED_COST * y.size * filters[..., 0].size + STEP * _steps(y, filters))
    out = np.zeros((shape[0], *room, depth), dtype=y.dtype)
    add = _add_depthwise if depthwise else _add
    for source, target in zip(y, out, strict=True):
        for rows in _row_parts(source, filters):
            add(target, source[rows], filters, window, rows.start)
    inner = (slice(a, a + d) for d, (a, _) in zip(shape[1:-1], window.pads, strict=True))
    within = (slice(None), *inner)
    return np.ascontiguousarray(out[within])


def _steps(y: Array, filters: Array) -> int:
    """Return the number of sums: one for each tap and each part of an image."""
    return len(y) * len(_row_parts(y[0], filters)) * filters[..., 0, 0].size if len(y) else 0


def _row_parts(source: Array, filters: Array) -> list[slice]:
    each = source[:1].size // max(source.shape[-1], 1) * filters[..., 0].size * filters.itemsize
    step = max(_SCRATCH_BYTES // max(each, 1), 1)
    return [slice(i, min(i + step, len(source))) for i in range(0, len(source), step)]


def _add(target: Array, rows: Array, filters: Array, window: Window, first: int) -> None:
    """Add the contribution of some rows of positions: one product, then a sum for each tap."""
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
    """Return the slices that one tap covers; ``first`` is the index of the first row."""
    starts = [t * d for t, d in zip(tap, window.dilations, strict=True)]
    starts[0] += first * window.strides[0]
    return tuple(
        slice(a, a + (n - 1) * s + 1, s)
        for a, n, s in zip(starts, positions, window.strides, strict=True)
    )
