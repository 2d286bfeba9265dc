"""Quantization arithmetic: ranges, scales, zero points, and clipping."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.allocation import allocated
from mobileprep.ops.numerics.parallel import for_each

Kind = np.dtype[Any]

# All 8-bit values; as int8, 0 to 127 come before -128 to -1.
EVERY_BYTE: Final = np.arange(256, dtype=np.uint8)

# A block and its intermediate results fit into a core's cache.
_BLOCK: Final = 1 << 15
_LOWEST_INT64: Final = -(1 << 63)
# The largest numbers below one half. Added before truncation, they round halves away from zero.
# Adding one half itself would also round up the largest number below one half.
_ALMOST_HALF: Final = math.nextafter(0.5, 0.0)
_ALMOST_HALF_BITS: Final = np.float32(0.5).view(np.int32) - np.int32(1)
_TOP: Final = np.float32(2**31)
_SIGN_BIT: Final = np.int32(-(1 << 31))


class Limits(Struct, frozen=True):
    """A range of floats.

    Args:
        low: the value of the lowest integer of a type.
        high: the value of the highest integer.
    """

    low: np.float32
    high: np.float32

    @property
    def span(self) -> np.float32:
        """Width of the range, in single precision."""
        span: np.float32 = self.high - self.low
        return span

    @property
    def is_empty(self) -> bool:
        """Whether both ends are equal."""
        return bool(self.low == self.high)

    def outputs(self) -> tuple[Array, Array]:
        """Return both ends in the form of kernel outputs."""
        return np.asarray(self.low), np.asarray(self.high)


class Steps(Struct, frozen=True):
    """The integers of a type that divide a range.

    Args:
        lowest: the lowest integer.
        highest: the highest integer.
    """

    lowest: int
    highest: int

    @property
    def count(self) -> int:
        """Number of integers."""
        return self.highest - self.lowest + 1


def steps_of(kind: Kind) -> Steps:
    """Return the lowest and highest integer of a type."""
    info = np.iinfo(kind)
    return Steps(int(info.min), int(info.max))


def flushed(x: Array) -> Array:
    """Replace denormal floats by zeros, like TensorFlow's processor mode."""
    denormal = np.abs(x) < np.finfo(x.dtype).tiny
    return np.where(denormal, np.copysign(x.dtype.type(0), x), x) if denormal.any() else x


def round_half_away(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round to integers in place, halves away from zero, like ``roundf`` in C."""
    # Equivalent to copysign, which is several times slower in numpy.
    half = np.bitwise_and(x.view(np.int32), _SIGN_BIT)
    half |= _ALMOST_HALF_BITS
    x += half.view(np.float32)
    return np.trunc(x, out=x)


def rounded(x: float | np.floating[Any]) -> float:
    """Round to the nearest integer, halves away from zero, like ``round`` in C; NaN stays NaN."""
    # Use double precision even if x is a numpy float.
    x = float(x)
    return float(np.trunc(x + math.copysign(_ALMOST_HALF, x)))


def as_int64(x: float) -> int:
    """Truncate a double to an integer like the processor: out-of-range values become the lowest."""
    return int(x) if abs(x) < -_LOWEST_INT64 else _LOWEST_INT64


def as_integers(x: Array, kind: Kind, missing: int = 0) -> Array:
    """Truncate floats to integers of a type.

    Args:
        x: the floats. 2**31, the nearest float to the highest 32-bit integer, becomes the lowest.
        missing: the result for NaN and infinity.
    """
    finite = np.isfinite(x)
    if not finite.all():
        x = np.where(finite, x, np.float32(missing))
    return x.astype(kind) if kind.itemsize < 4 else x.astype(np.int64).astype(kind)


def wrapped(x: int, bits: int) -> int:
    """Wrap an integer to a signed integer of the given width."""
    half = 1 << (bits - 1)
    return (x + half) % (2 * half) - half


def level(x: float, limits: Limits, kind: Kind) -> int:
    """Quantize a float in double precision, without clipping to the range of the type."""
    steps = steps_of(kind)
    if limits.is_empty:
        return steps.lowest
    scale = steps.count / (np.float64(limits.span) * (steps.count / (steps.count - 1.0)))
    offset = as_int64(rounded(x * scale) - rounded(np.float64(limits.low) * scale))
    return wrapped(offset + steps.lowest, 64)


def to_integer(x: float, limits: Limits, kind: Kind) -> int:
    """Quantize a float to an integer of a type, in double precision."""
    steps = steps_of(kind)
    return min(max(level(x, limits, kind), steps.lowest), steps.highest)


def to_integers(x: Array | np.float32, limits: Limits, kind: Kind) -> Array:
    """Apply ``to_integer`` to each float of a table."""
    flat = [to_integer(float(v), limits, kind) for v in x.reshape(-1)]
    return np.array(flat, dtype=kind).reshape(x.shape)


def offset_of_zero(limits: Limits, kind: Kind) -> int:
    """Return the zero point, without clipping to the type, wrapped to 32 bits."""
    return wrapped(level(0.0, limits, kind), 32)


def to_floats(values: Array, limits: Limits) -> NDArray[np.float32]:
    """Dequantize a table's integers in double precision."""
    steps = steps_of(values.dtype)
    if limits.is_empty:
        return np.full(values.shape, limits.low, dtype=np.float32)
    scale = np.float64(limits.span) * (steps.count / (steps.count - 1.0)) / steps.count
    narrow = np.float32(scale)
    origin = np.float32(rounded(np.float32(limits.low / narrow))) * narrow
    # TensorFlow converts its integer types through single precision.
    offset = values.astype(np.float32).astype(np.float64) - steps.lowest
    out: NDArray[np.float32] = (np.float64(origin) + offset * scale).astype(np.float32)
    return out


def through_int32(values: Array) -> NDArray[np.float32]:
    """Convert quantized integers to single precision by way of plain 32-bit integers.

    TensorFlow converts them through single precision: values that round to 2**31 become the lowest
    32-bit integer.
    """
    out = values.astype(np.float32)
    np.negative(out, where=out >= _TOP, out=out)
    return out


def in_blocks(work: Callable[[slice], None], size: int) -> None:
    """Call a function for all parts of a flat array, each small enough for a core's cache."""
    for_each(work, [slice(start, start + _BLOCK) for start in range(0, size, _BLOCK)])


def looked_up(table: Array, values: Array) -> Array:
    """Look up the table entry for each 8-bit value.

    Args:
        values: uint8 or int8 of any shape.
    """
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    out = np.empty(flat.size, dtype=table.dtype)

    # numpy converts indices to 8 bytes; all at once, they would fill the memory.
    def look_up(part: slice) -> None:
        table.take(flat[part], out=out[part], mode="clip")

    in_blocks(look_up, flat.size)
    return out.reshape(values.shape)


# The largest float below 2**31, to which TensorFlow clips 32-bit results.
_HIGHEST: Final = np.float32(2147483520)


class Dequantizer(Struct, frozen=True):
    """Dequantization rule: origin + integer * scale."""

    origin: np.float32
    scale: np.float32

    @classmethod
    def of(cls, limits: Limits, kind: Kind) -> Dequantizer:
        """Create the rule for a type's integers over a range."""
        steps = steps_of(kind)
        scale = np.float32(np.float64(limits.span) / (steps.count - 1.0))
        low = limits.low
        if not limits.is_empty:
            low = np.float32(rounded(np.float32(limits.low / scale))) * scale
        return cls(np.float32(low - np.float32(steps.lowest) * scale), scale)

    def __call__(self, values: Array) -> NDArray[np.float32]:
        """Dequantize integers."""
        flat = values.reshape(-1)
        out = np.empty(flat.size, dtype=np.float32)

        def dequantize(part: slice) -> None:
            block = out[part]
            block[:] = flat[part]
            block *= self.scale
            block += self.origin

        in_blocks(dequantize, flat.size)
        return out.reshape(values.shape)


class Quantizer(Struct, frozen=True):
    """Quantization rule: round(float * scale) - origin."""

    scale: np.float32
    origin: np.float32
    kind: Kind

    @classmethod
    def of(cls, limits: Limits, kind: Kind) -> Quantizer:
        """Create the rule for a type's integers over a range."""
        steps = steps_of(kind)
        scale = np.float32(0)
        if not limits.is_empty:
            scale = np.float32((steps.count - 1.0) / np.float64(limits.span))
        low = np.float32(rounded(np.float32(limits.low * scale)))
        return cls(scale, np.float32(low - np.float32(steps.lowest)), kind)

    def __call__(self, x: NDArray[np.float32]) -> Array:
        """Quantize floats; values beyond the range become its ends."""
        steps = steps_of(self.kind)
        lowest, highest = np.float32(steps.lowest), min(np.float32(steps.highest), _HIGHEST)
        # NaN becomes the lowest 32-bit integer; narrower types keep its low bits, which are zeros.
        missing = steps.lowest if self.kind.itemsize == 4 else 0
        flat = x.reshape(-1)
        out = np.empty(flat.size, dtype=self.kind)

        def quantize(part: slice) -> None:
            block = round_half_away(np.multiply(flat[part], self.scale))
            block -= self.origin
            np.clip(block, lowest, highest, out=block)
            out[part] = as_integers(block, self.kind, missing)

        in_blocks(quantize, flat.size)
        return out.reshape(x.shape)


STEPS: Final = 256


def to_quint8(values: Array, low: np.float32, high: np.float32) -> NDArray[np.uint8]:
    """Quantize each value to the nearest 8-bit integer; values beyond the range become 0 or 255.

    Args:
        values: finite float32 of any shape.
        low: the value of 0.
        high: the value of 255.

    Source: ``FloatToQuantized`` of TensorFlow's quantization utilities, bit-exact: the scale and
    the products are in double precision, halves are rounded away from zero.
    """
    scale = STEPS / (float(high - low) * (STEPS / (STEPS - 1.0)))
    lowest = rounded(float(low) * scale)
    flat = values.reshape(-1)
    out = np.empty(flat.size, dtype=np.uint8)

    def quantize(part: slice) -> None:
        scaled = flat[part].astype(np.float64) * scale
        scaled = np.trunc(scaled + np.copysign(_ALMOST_HALF, scaled)) - lowest
        out[part] = np.clip(scaled, 0, STEPS - 1)

    in_blocks(quantize, flat.size)
    return out.reshape(values.shape)


def clipped(x: Array, least: float, most: float) -> Array:
    """Clip elements to ``least`` and ``most`` in a copy; NaN stays NaN."""
    low, high = x.dtype.type(least), x.dtype.type(most)
    out = allocated(x.shape, x.dtype)
    source, target = np.ascontiguousarray(x).reshape(-1), out.reshape(-1)

    def clip(part: slice) -> None:
        # A single pass for both bounds, and faster than a maximum with a scalar.
        np.clip(source[part], low, high, out=target[part])

    in_blocks(clip, source.size)
    return out
