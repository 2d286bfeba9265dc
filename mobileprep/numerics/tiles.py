"""Tiles: parts of a convolution's output, and the parts of its input that they need."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import allocated
from mobileprep.numerics.windows import Window, reach


@dataclass(frozen=True, slots=True)
class Tile:
    """Some rows of some images of an output."""

    images: slice
    rows: slice

    def of(self, out: Array) -> Array:
        """The tile's view of a tensor [batch, rows, ...]."""
        return out[self.images, self.rows]


def whole_tile(x: Array, window: Window) -> Tile:
    """All that a window makes of an input [batch, rows, columns, ...]."""
    return Tile(slice(0, len(x)), slice(0, window.positions(x.shape[1:-1])[0]))


Finish = Callable[[Array, Tile], None]
"""Called for each tile of an output, as soon as it is computed, with its place; may change it."""


def tiles(shape: Sequence[int], footprint: int, limit: int, least: int) -> tuple[Tile, ...]:
    """An output cut along batch, or along batch and rows.

    Args:
        shape: of the output, [batch, rows, ...].
        footprint: bytes of work space for each position (an element of all axes but the last).
        limit: about how many bytes a tile may take.
        least: how many tiles to make at least, if there are as many rows.
    """
    size = math.prod(shape[:-1]) * footprint
    return grid(shape[0], shape[1], max(-(-size // limit), least, 1))


# Networks ask the same of every layer in every run.
@lru_cache(maxsize=256)
def grid(batch: int, rows: int, count: int) -> tuple[Tile, ...]:
    """``count`` tiles, if there are as many rows."""
    whole = slice(0, rows)
    if batch >= count:
        return tuple(Tile(images, whole) for images in cuts(batch, count))
    across = cuts(rows, -(-count // batch))
    return tuple(Tile(slice(i, i + 1), part) for i in range(batch) for part in across)


def cuts(length: int, count: int) -> list[slice]:
    """A range cut into at most ``count`` parts; the first is as long as any, the least one less."""
    parts = max(min(count, length), 1)
    ends = [-(-i * length // parts) for i in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(ends)] if length else []


def patches(x: Array, window: Window, tile: Tile, positions: tuple[int, ...]) -> Array:
    """What a tile's windows cover: a view [images, *positions, *window, channels].

    Args:
        x: the whole input, [batch, *spatial, channels], not padded.
        window: how the window slides.
        tile: images and rows of the output.
        positions: how many positions the window has along each axis.
    """
    return Patches.of(x.shape, window, tile, positions).view(x)


@dataclass(frozen=True, slots=True)
class Patches:
    """What a tile's windows cover, of any input of one shape.

    Args:
        reach: what of the input they cover.
        window: how the window slides.
        shape: of the view, [images, *positions, *window, channels].
        strides: of the view in elements, where what they cover lies in one piece.
    """

    reach: Reach
    window: Window
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(
        cls, shape: tuple[int, ...], window: Window, tile: Tile, positions: tuple[int, ...]
    ) -> Patches:
        """For inputs of a shape; the other arguments are those of ``patches``."""
        covered = Reach.of(shape, window, tile)
        rows = tile.rows.stop - tile.rows.start
        made = (covered.shape[0], rows, *positions[1:], *window.size, shape[-1])
        elements = [math.prod(covered.shape[axis + 1 :]) for axis in range(len(shape))]
        return cls(covered, window, made, _sliding(elements, window))

    def view(self, x: Array) -> Array:
        """What the windows cover of an input; it is not to be written to."""
        source = self.reach.rows(x)
        if source.flags.c_contiguous:
            # As ``as_strided``, in an eighth of its time: while it runs no other thread may begin.
            strides = [n * source.itemsize for n in self.strides]
            found: Array = np.ndarray(self.shape, source.dtype, source, strides=strides)
            return found
        apart = _sliding(source.strides, self.window)
        return as_strided(source, self.shape, apart, writeable=False)


def _sliding(strides: Sequence[int], window: Window) -> tuple[int, ...]:
    """The strides of a view of what windows cover, for those of what it is a view of."""
    inner = strides[1:-1]
    steps = [s * stride for s, stride in zip(inner, window.strides, strict=True)]
    taps = [s * dilation for s, dilation in zip(inner, window.dilations, strict=True)]
    return (strides[0], *steps, *taps, strides[-1])


def padded_rows(x: Array, window: Window, tile: Tile, value: float = 0) -> Array:
    """The images and rows that a tile's windows reach, with padding around them.

    Padding tile by tile, the copy stays in the cache, and no copy of the whole input is made.
    """
    return Reach.of(x.shape, window, tile).rows(x, value)


@dataclass(frozen=True, slots=True)
class Reach:
    """The images and rows of an input that a tile's windows reach, and the padding around them.

    Args:
        inside: the images, and those of the rows that are there.
        shape: of the rows with padding.
        within: where the input is in them; nothing where there is no padding.
        around: what the padding is made of, which overlaps nowhere.
    """

    inside: tuple[slice, slice]
    shape: tuple[int, ...]
    within: tuple[slice, ...]
    around: tuple[tuple[slice, ...], ...]

    @classmethod
    def of(cls, shape: tuple[int, ...], window: Window, tile: Tile) -> Reach:
        """What windows reach of an input of a shape, [batch, *spatial, channels]."""
        stride, before = window.strides[0], window.pads[0][0]
        first = tile.rows.start * stride - before
        end = (tile.rows.stop - 1) * stride + reach(window.size[0], window.dilations[0]) - before
        low = min(max(first, 0), shape[1])
        high = max(min(end, shape[1]), low)
        images = len(range(shape[0])[tile.images])
        widths = [d + sum(p) for d, p in zip(shape[2:-1], window.pads[1:], strict=True)]
        padded = (images, end - first, *widths, shape[-1])
        inside = (tile.images, slice(low, high))
        if first == low and end == high and not any(map(sum, window.pads[1:])):
            return cls(inside, padded, (), ())
        # Where all windows lie beyond the input's end there is nothing to copy.
        begin = max(low - first, 0)
        rest = (slice(a, a + d) for d, (a, _) in zip(shape[2:-1], window.pads[1:], strict=True))
        within = (slice(None), slice(begin, begin + high - low), *rest)
        return cls(inside, padded, within, tuple(_sides(padded, within)))

    def rows(self, x: Array, value: float = 0) -> Array:
        """The rows with padding of this value; a view of the input where there is none."""
        inside: Array = x[self.inside]
        if not self.within:
            return inside
        out = allocated(self.shape, x.dtype)
        out[self.within] = inside
        for side in self.around:
            out[side] = value
        return out


def _sides(shape: tuple[int, ...], within: tuple[slice, ...]) -> Iterator[tuple[slice, ...]]:
    """What lies outside of a box; what lies in it is written once, as it was."""
    for axis, part in enumerate(within[1:], start=1):
        for side in (slice(0, part.start), slice(part.stop, shape[axis])):
            if side.start < side.stop:
                yield (*within[:axis], side)


def lowest(x: Array) -> float:
    """The number to pad with where the largest of each window is sought."""
    return int(np.iinfo(x.dtype).min) if x.dtype.kind in "iu" else -np.inf
