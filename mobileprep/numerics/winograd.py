"""Convolutions of 3 by 3 filters by Winograd's minimal filtering: fewer multiplications.

Of each patch of the input come four outputs, or sixteen. Its elements and the filters are
transformed; products of channels and filters are then 16 or 36 for a patch instead of 36 or 144. A
layer's root mean squared error is one and a half times, or four times, that of plain sums: still
some parts in ten million of its largest result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import allocated
from mobileprep.numerics.parallel import for_each
from mobileprep.numerics.tiles import Finish, Tile, cuts, grid, patches
from mobileprep.numerics.windows import Window
from mobileprep.numerics.winograd_transforms import TAPS, transforms

# Of one tile's transformed patches and its products: in the processor's last cache.
_SPACE_BYTES = 4 << 20
# Patches in a tile that keep matrix products efficient, and from which on transforms pay.
_LEAST_PATCHES = 40
# Channels times filters from which on transforms pay, by outputs of a patch along an axis.
_LEAST_PRODUCTS = ((4, 1 << 11), (2, 1 << 14))


@dataclass(frozen=True, slots=True)
class WinogradFilters:
    """A bank of filters, transformed.

    Args:
        outputs: how many adjacent outputs come of one patch, along height and along width.
        points: the filters, [points, channels, filters].
        inputs: what transforms patches, [points, points].
        output: what makes outputs of products, [outputs, points].
    """

    outputs: int
    points: Array
    inputs: Array
    output: Array

    @classmethod
    def of(cls, filters: Array, outputs: int) -> WinogradFilters:
        """Transform float32 filters, [3, 3, channels, filters]."""
        axis = transforms(outputs)
        columns = np.tensordot(axis.filters, filters, (1, 1))
        points = np.tensordot(axis.filters, columns, (1, 1))
        return cls(
            outputs,
            points.reshape(-1, *filters.shape[2:]).astype(np.float32),
            np.kron(axis.inputs, axis.inputs).astype(np.float32),
            np.kron(axis.output, axis.output).astype(np.float32),
        )


def winograd_outputs(shape: Sequence[int], filters: Array, window: Window) -> int:
    """How many outputs a patch should have along an axis, or 0 where plain sums are faster.

    Args:
        shape: of the input, [batch, height, width, channels].
        filters: [*window, channels, filters].
        window: how the filters slide.
    """
    plain = replace(window, strides=(1, 1), dilations=(1, 1))
    if window != plain or window.size != (TAPS, TAPS) or shape[-1] != filters.shape[2]:
        return 0
    products = filters.shape[2] * filters.shape[3]
    for outputs, least in _LEAST_PRODUCTS:
        count = _patches(window.positions(shape[1:-1]), outputs)
        if products >= least and shape[0] * math.prod(count) >= _LEAST_PATCHES:
            return outputs
    return 0


def convolve_winograd(
    x: Array, bank: WinogradFilters, window: Window, finish: Finish | None = None
) -> Array | None:
    """The convolution of a batch with a bank of filters, or None where a result is not finite.

    An infinity or NaN would spread over all outputs of a patch.

    Args:
        x: float32, [batch, height, width, channels].
        bank: the filters.
        window: how the filters slide: by one element, over adjacent ones.
        finish: called for each tile.

    Returns:
        [batch, positions, positions, filters].
    """
    positions = window.positions(x.shape[1:-1])
    out = allocated((x.shape[0], *positions, bank.points.shape[-1]), x.dtype)
    outputs, count = bank.outputs, _patches(positions, bank.outputs)
    apart = _apart(window, outputs, positions)
    lost = []

    def work(tile: Tile) -> None:
        made = _made(patches(x, apart, tile, count), bank)
        place = _outputs_of(tile, outputs, positions[0])
        target = place.of(out)
        _put(made, target, outputs)
        if not np.isfinite(target.sum()):
            lost.append(tile)
        elif finish is not None:
            finish(target, place)

    for_each(work, _tiles(x.shape[0], count, bank))
    return None if lost else out


def _patches(positions: tuple[int, ...], outputs: int) -> tuple[int, ...]:
    """How many patches there are along each axis; the last may have outputs too many."""
    return tuple(-(-n // outputs) for n in positions)


def _tiles(batch: int, count: tuple[int, ...], bank: WinogradFilters) -> tuple[Tile, ...]:
    """Rows of patches that are transformed together."""
    points, channels, filters = bank.points.shape
    total = batch * math.prod(count)
    size = 2 * total * points * (channels + filters) * bank.points.itemsize
    return grid(batch, count[0], max(-(-size // _SPACE_BYTES), min(total // _LEAST_PATCHES, 2)))


def _apart(window: Window, outputs: int, positions: tuple[int, ...]) -> Window:
    """How patches lie in the input, with zeros after it to fill the last."""
    pads = tuple(
        (before, after + -n % outputs)
        for (before, after), n in zip(window.pads, positions, strict=True)
    )
    size = outputs + TAPS - 1
    return Window((size, size), (outputs, outputs), (1, 1), pads)


def _outputs_of(tile: Tile, outputs: int, rows: int) -> Tile:
    """The rows of outputs that rows of patches make."""
    return Tile(tile.images, slice(tile.rows.start * outputs, min(tile.rows.stop * outputs, rows)))


def _made(space: Array, bank: WinogradFilters) -> Array:
    """All outputs of some patches.

    Args:
        space: [images, rows, columns, height, width, channels].
        bank: the filters.

    Returns:
        [height, width, images, rows, columns, filters], height and width those of the outputs.
    """
    points, channels, filters = bank.points.shape
    shape = space.shape[:3]
    count = math.prod(shape)
    elements = np.empty((points, count * channels), np.float32)
    elements.reshape(*space.shape[3:5], *shape, channels)[...] = space.transpose(3, 4, 0, 1, 2, 5)
    inputs = np.matmul(bank.inputs, elements).reshape(points, count, channels)
    products = np.empty((points, count, filters), np.float32)

    def work(part: slice) -> None:
        np.matmul(inputs[part], bank.points[part], out=products[part])

    for_each(work, cuts(points, 2))
    made: Array = np.matmul(bank.output, products.reshape(points, -1))
    return made.reshape(bank.outputs, bank.outputs, *shape, filters)


def _put(made: Array, target: Array, outputs: int) -> None:
    """Put the outputs of patches side by side, without those too many."""
    images, height, width, filters = target.shape
    rows, columns = made.shape[3:5]
    if (height, width) == (rows * outputs, columns * outputs):
        # One copy instead of many where there are none.
        side = target.reshape(images, rows, outputs, columns, outputs, filters)
        side[...] = made.transpose(2, 3, 0, 4, 1, 5)
        return
    for row, column in np.ndindex(outputs, outputs):
        part = target[:, row::outputs, column::outputs]
        part[...] = made[row, column, :, : part.shape[1], : part.shape[2]]
