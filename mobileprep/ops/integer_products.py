"""Exact sums of products of integers through BLAS.

A product of matrices of small integers is exact in floating point as long as no sum passes the
float's mantissa. It is therefore cut along the summed axis into blocks short enough, and the blocks'
sums are added as 32-bit integers, which wrap around as they do in TensorFlow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mobileprep.ir.tensor import Array
from mobileprep.ops.parallel import for_each, threads
from mobileprep.ops.products import LEAST_WORK
from mobileprep.ops.tiling import Tile, cuts, patches, tiles
from mobileprep.ops.window import Window

# Whole numbers up to here are exact in single and in double precision.
_EXACT = {np.dtype(np.float32): 1 << 24, np.dtype(np.float64): 1 << 53}
# Blocks of single precision shorter than this would cost more in adding than they save.
_SHORTEST = 64
_PATCH_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Factors:
    """The right side of products, prepared for left sides of a known size.

    Args:
        blocks: float [block, columns] each, of which the rows together are the summed axis.
        columns: how many columns there are.
    """

    blocks: tuple[Array, ...]
    columns: int

    @classmethod
    def of(cls, matrix: Array, largest: int) -> Factors:
        """Prepare a matrix.

        Args:
            matrix: integers [summed, columns], of magnitude up to 2**32.
            largest: the largest magnitude on the left side, up to 2**8.
        """
        rows, columns = matrix.shape
        most = max(abs(int(matrix.max(initial=0))), abs(int(matrix.min(initial=0))), 1)
        kind = np.dtype(np.float32)
        length = _EXACT[kind] // (largest * most)
        if length < min(_SHORTEST, rows):
            kind = np.dtype(np.float64)
            length = _EXACT[kind] // (largest * most)
        floats = matrix.astype(kind)
        return cls(tuple(floats[cut] for cut in cuts(rows, -(-rows // length))), columns)

    @property
    def kind(self) -> np.dtype[np.floating]:
        """The type that left sides have to have."""
        found: np.dtype[np.floating] = self.blocks[0].dtype
        return found

    def multiply(self, left: Array, out: NDArray[np.int32]) -> None:
        """Write the product to ``out``.

        Args:
            left: whole numbers [rows, summed] of type ``kind``.
            out: int32 [rows, columns].
        """
        start = 0
        for block in self.blocks:
            part = _as_int32(left[:, start : start + len(block)] @ block)
            if start == 0:
                out[...] = part
            else:
                out += part
            start += len(block)


def _as_int32(sums: Array) -> NDArray[np.int32]:
    whole = sums if sums.dtype == np.float32 else sums.astype(np.int64)
    return whole.astype(np.int32)


def wrapped(x: Array) -> NDArray[np.int32]:
    """The lower 32 bits of integers of 64 bits."""
    return x.astype(np.int32)


def multiply_integers(left: Array, right: Array, largest: int) -> NDArray[np.int32]:
    """The product of two matrices of integers, modulo 2**32.

    Args:
        left: integers [rows, summed] of magnitude up to ``largest``.
        right: integers [summed, columns] of magnitude up to 2**32.
        largest: up to 2**8.
    """
    out = np.zeros((len(left), right.shape[1]), dtype=np.int32)
    if not out.size or not left.shape[1]:
        return out
    factors = Factors.of(right, largest)
    work = out.size * left.shape[1]
    size = left.size * factors.kind.itemsize
    count = max(-(-size // _PATCH_BYTES), min(threads(), work // LEAST_WORK), 1)

    def multiply(rows: slice) -> None:
        factors.multiply(left[rows].astype(factors.kind), out[rows])

    for_each(multiply, cuts(len(left), count))
    return out


def convolve_integers(
    x: Array, filters: Array, window: Window, largest: int
) -> NDArray[np.int32]:
    """The convolution of a batch with a bank of filters, modulo 2**32, zeros as padding.

    Args:
        x: integers [batch, *spatial, channels] of magnitude up to ``largest``.
        filters: integers [*window, channels, filters] of magnitude up to 2**32.
        window: how the filters slide.
        largest: up to 2**8.

    Returns:
        [batch, *positions, filters].

    Raises:
        ValueError: the window is larger than the input.
    """
    positions = window.positions(x.shape[1:-1])
    out = np.zeros((x.shape[0], *positions, filters.shape[-1]), dtype=np.int32)
    summed = math.prod(filters.shape[:-1])
    if not out.size or not summed:
        return out
    factors = Factors.of(filters.reshape(summed, -1), largest)
    source = x.astype(factors.kind)

    def convolve(tile: Tile) -> None:
        rows = patches(source, window, tile, positions).reshape(-1, summed)
        factors.multiply(rows, tile.of(out).reshape(len(rows), -1))

    shares = min(threads(), out.size * summed // LEAST_WORK)
    for_each(convolve, tiles(out, summed * factors.kind.itemsize, _PATCH_BYTES, shares))
    return out
