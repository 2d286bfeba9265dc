"""Convolution of channels-last tensors through matrix products."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mobileprep.core.limits import spend_products
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import allocated
from mobileprep.numerics.matrix_products import multiply, parts_of
from mobileprep.numerics.parallel import for_each
from mobileprep.numerics.tiles import Finish, Patches, Tile, tiles
from mobileprep.numerics.windows import Window

# Patches of one tile: small enough for the processor's last cache, large enough for BLAS.
_PATCH_BYTES = 2 << 20
# Outputs of one tile, so that what finishes them finds them in the cache.
_OUTPUT_BYTES = 1 << 20
# Positions of one tile that are worth arranging the filters for, as BLAS does for each product.
_ROWS = 128
# Multiplications that copying an element into a patch takes.
_COPIED = 16


def convolve(x: Array, filters: Array, window: Window, finish: Finish | None = None) -> Array:
    """The convolution (cross-correlation) of a batch with a bank of filters.

    Args:
        x: [batch, *spatial, channels].
        filters: [*window, channels / groups, filters].
        window: how the filters slide.
        finish: called for each tile.

    Returns:
        [batch, *positions, filters].

    Raises:
        ValueError: the channels do not fit the filters.
    """
    depth, count = filters.shape[-2:]
    groups = _groups(x.shape[-1], depth, count)
    positions = window.positions(x.shape[1:-1])
    if groups != 1:
        out = _by_groups(x, filters, window, groups)
        if finish is not None:
            finish(out, Tile(slice(0, len(out)), slice(0, positions[0])))
        return out
    out = allocated((x.shape[0], *positions, count), x.dtype)
    taps = math.prod(filters.shape[:-1])
    spend_products(math.prod(out.shape[:-1]) * taps * (count + _COPIED), x.dtype)
    if out.size:
        _fill(out, x, filters.reshape(-1, count), window, finish)
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


def _fill(out: Array, x: Array, weights: Array, window: Window, finish: Finish | None) -> None:
    """Multiply patches, which are copied into a matrix tile by tile, with the filters.

    The copy is spared where the patches are single elements: the input is the matrix then.
    """
    parts = _parts(x.shape, out.shape, window, weights.shape[0], x.itemsize)
    run = multiply if len(parts) == 1 else np.matmul

    def work(part: _Part) -> None:
        tile, covered = part
        target = tile.of(out)
        elements = tile.of(x) if covered is None else covered.view(x)
        rows = elements.reshape(-1, len(weights))
        run(rows, weights, out=target.reshape(len(rows), -1))
        if finish is not None:
            finish(target, tile)

    for_each(work, parts)


class _Part(NamedTuple):
    """A tile of an output, and what its windows cover; None where each covers one element."""

    tile: Tile
    covered: Patches | None


# Networks ask the same of every layer in every run. What a thread need not work out itself lets
# the others begin: they do not run Python at the same time.
@lru_cache(maxsize=256)
def _parts(
    shape: tuple[int, ...], made: tuple[int, ...], window: Window, summed: int, itemsize: int
) -> tuple[_Part, ...]:
    """The tiles of an output, with what their windows cover.

    Args:
        shape: of the input, [batch, *spatial, channels].
        made: of the output, [batch, *positions, filters].
        window: how the filters slide.
        summed: how many products make an output.
        itemsize: of an element.
    """
    positions, filters = made[1:-1], made[-1]
    single = math.prod(window.size) == 1
    adjacent = single and set(window.strides) == {1} and not any(map(sum, window.pads))
    if single:
        footprint = filters * itemsize
        limit = max(_OUTPUT_BYTES, 2 * summed * filters * itemsize)
    else:
        footprint, limit = summed * itemsize, _PATCH_BYTES
    # With fewer positions than filters the product itself is cut, between the filters.
    count = math.prod(made[:-1])
    shares = min(parts_of(count * filters * summed), max(count // _ROWS, 2))
    cut = tiles(made, footprint, limit, shares if count > filters else 1)
    return tuple(
        _Part(tile, None if adjacent else Patches.of(shape, window, tile, positions))
        for tile in cut
    )
