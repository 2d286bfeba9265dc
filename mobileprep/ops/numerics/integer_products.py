"""Products of 8-bit integers, and fixed-point multipliers."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mobileprep.core.limits import spend
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.allocation import check_allocation, check_bytes
from mobileprep.ops.numerics.parallel import LEAST_WORK, for_each, threads
from mobileprep.ops.numerics.quantization import Limits, as_int64, in_blocks, rounded, wrapped
from mobileprep.ops.numerics.windows import Tile, Window, cuts, patches, tiles

# The largest 8-bit number, which is also the largest difference of two.
_LARGEST = 255
# Integers up to these are exact in single and in double precision.
_SINGLE, _DOUBLE = 1 << 24, 1 << 53
# Shorter single-precision blocks would cost more for additions than they save.
_SHORTEST = 64
_PATCH_BYTES = 2 << 20
# Operations for a product, half of them in double precision.
_COST = 4


class _Factors(Struct, frozen=True):
    """The right side of products whose left sides have magnitudes up to 255.

    Args:
        blocks: floats [block, columns] each; together, their rows are the summed axis.
    """

    blocks: tuple[Array, ...]

    @classmethod
    def of(cls, matrix: Array, zero: int) -> _Factors:
        """Prepare integers [summed, columns] minus a zero point; magnitudes up to 2**32."""
        most = max(abs(int(end) - zero) for end in (matrix.max(), matrix.min()))
        bound = _LARGEST * max(most, 1)
        single = _SINGLE // bound >= min(_SHORTEST, len(matrix))
        length = (_SINGLE if single else _DOUBLE) // bound
        floats: Array = matrix.astype(np.float32 if single else np.float64)
        floats -= floats.dtype.type(zero)
        return cls(tuple(floats[cut] for cut in cuts(len(matrix), -(-len(matrix) // length))))

    @property
    def kind(self) -> np.dtype[np.floating]:
        """The required type of left sides."""
        dtype: np.dtype[np.floating] = self.blocks[0].dtype
        return dtype

    def multiply(self, lhs: Array, out: NDArray[np.int32]) -> None:
        """Write the product with integral floats [rows, summed] to ``out``, [rows, columns]."""
        start = 0
        for block in self.blocks:
            part = _as_int32(lhs[:, start : start + len(block)] @ block)
            if start == 0:
                out[...] = part
            else:
                out += part
            start += len(block)


def _as_int32(sums: Array) -> NDArray[np.int32]:
    """Convert integral floats to integers, modulo 2**32."""
    whole = sums if sums.dtype == np.float32 else sums.astype(np.int64)
    return whole.astype(np.int32)


def _times(sums: Array, missing: int) -> NDArray[np.int32]:
    """Multiply integers by a number, modulo 2**32."""
    return (sums.astype(np.int32).astype(np.int64) * missing).astype(np.int32)


def multiply_integers(lhs: Array, rhs: Array, zeros: tuple[int, int]) -> NDArray[np.int32]:
    """Multiply two matrices, modulo 2**32.

    Args:
        zeros: the zero points of both, which are subtracted.
    """
    summed = lhs.shape[1]
    spend(_COST * len(lhs) * rhs.size)
    out = np.zeros((len(lhs), rhs.shape[1]), dtype=np.int32)
    if not out.size or not summed:
        return out
    factors, offset = _Factors.of(rhs, zeros[1]), _zero_offset(zeros[0])
    size = lhs.size * factors.kind.itemsize
    shares = min(threads(), out.size * summed // LEAST_WORK)

    def multiply(rows: slice) -> None:
        factors.multiply(_less(lhs[rows], offset, factors.kind), out[rows])

    for_each(multiply, cuts(len(lhs), max(-(-size // _PATCH_BYTES), shares, 1)))
    if offset != zeros[0]:
        sums = rhs.sum(axis=0, dtype=np.int64) - summed * zeros[1]
        out += _times(sums, offset - zeros[0])
    return out


def convolve_integers(
    x: Array, filters: Array, window: Window, zeros: tuple[int, int] = (0, 0)
) -> NDArray[np.int32]:
    """Convolve a batch with a bank of filters, modulo 2**32.

    Padding counts as zero. As in TensorFlow, if the zero point of ``x`` is above the 8-bit range,
    the padding is its lowest byte.

    Args:
        filters: integers [*window, channels, filters], 8-bit unless their zero point is 0.
        zeros: the zero points of ``x`` and the filters, which are subtracted.
    """
    positions = window.positions(x.shape[1:-1])
    summed = math.prod(filters.shape[:-1])
    shape, kind = (x.shape[0], *positions, filters.shape[-1]), np.dtype(np.int32)
    check_allocation(shape, kind)
    # A tile has at least one row of positions, with all elements that its windows cover.
    check_bytes(math.prod(positions[1:]) * summed * kind.itemsize, "a row of patches")
    spend(_COST * math.prod(shape) * summed)
    out = np.zeros(shape, kind)
    if not out.size or not summed:
        return out
    factors, offset = _Factors.of(filters.reshape(summed, -1), zeros[1]), _zero_offset(zeros[0])
    source = _less(x, offset, factors.kind)

    def convolve(tile: Tile) -> None:
        rows = patches(source, window, tile, positions).reshape(-1, summed)
        factors.multiply(rows, tile.of(out).reshape(len(rows), -1))

    shares = min(threads(), out.size * summed // LEAST_WORK)
    for_each(convolve, tiles(out.shape, summed * factors.kind.itemsize, _PATCH_BYTES, shares))
    if offset != zeros[0]:
        taps = filters.sum(axis=-2, dtype=np.int64) - filters.shape[-2] * zeros[1]
        sums = taps.sum(axis=(0, 1)) if zeros[0] > 0 else _sums_inside(x, taps, window)
        out += _times(sums, offset - zeros[0])
    return out


def _zero_offset(zero: int) -> int:
    """Return the part of a zero point to subtract from 8-bit values before multiplication."""
    return zero & _LARGEST if zero > 0 else 0


def _less(x: Array, number: int, kind: np.dtype[np.floating]) -> Array:
    out = x.astype(kind)
    if number:
        out -= kind.type(number)
    return out


def _sums_inside(x: Array, taps: NDArray[np.int64], window: Window) -> NDArray[np.int32]:
    """Return the sum of the taps [*window, filters] outside of padding, for each position."""
    inside = np.ones((1, *x.shape[1:-1], 1), dtype=np.uint8)
    return convolve_integers(inside, taps.astype(np.int32)[..., None, :], window)


# Fractions are in units of 2**-16; 32-bit sums in units of 2**-32 of their range.
_SHIFT: Final = 16
_ONE: Final = 1 << _SHIFT
_SUM_SHIFT: Final = 32
_HIGHEST: Final = np.int32(255)
# Larger offsets dominate the sums, and would not fit 32 bits after the shift.
_FAR: Final = 1 << 44


def to_quint8(x: Array, limits: Limits, target: Limits) -> NDArray[np.uint8]:
    """Requantize 32-bit numbers to the nearest 8-bit numbers.

    Args:
        x: int32 of any shape.
        limits: the range of ``x``.
        target: the range of the result.
    """
    scale, offset = (np.int64(n) for n in _factors(limits, target))
    flat = x.reshape(-1)
    out = np.empty(flat.size, dtype=np.uint8)

    def convert(part: slice) -> None:
        wide = flat[part].astype(np.int64)
        wide *= scale
        wide >>= _SUM_SHIFT
        wide += offset
        wide >>= _SHIFT
        out[part] = np.clip(wide.astype(np.int32), np.int32(0), _HIGHEST)

    in_blocks(convert, flat.size)
    return out.reshape(x.shape)


def _factors(limits: Limits, target: Limits) -> tuple[int, int]:
    """Return the multiplier, and the offset for the upper half of the product."""
    half = _ONE >> 1
    if target.span == 0:
        return 0, half
    span = np.float64(target.span)
    scale = as_int64(255.0 * _ONE * np.float64(limits.span) / span)
    middle = np.float32(np.float64(np.float32(limits.low + limits.high)) / 2.0)
    added = as_int64(np.float64(middle * np.float32(255.0 / span) * np.float32(_ONE)))
    low = as_int64(rounded(_ONE * (np.float64(target.low) * 255.0) / span))
    return scale, min(max(wrapped(added - low + half, 64), -_FAR), _FAR)
