"""Quantization arithmetic: ranges, scales, zero points, and clipping."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.allocation import allocated
from mobileprep.ops.numerics.parallel import for_each

Kind = np.dtype[Any]

# All eight-bit numbers; as int8, 0 to 127 come before -128 to -1.
EVERY_BYTE: Final = np.arange(256, dtype=np.uint8)

# A block and what is computed from it stay in a core's cache.
_BLOCK: Final = 1 << 15
_LOWEST_INT64: Final = -(1 << 63)
# The largest numbers below one half: added before cutting, they round halves away from zero, and
# nothing else up, which adding one half itself does not.
_ALMOST_HALF: Final = math.nextafter(0.5, 0.0)
_ALMOST_HALF_BITS: Final = np.float32(0.5).view(np.int32) - np.int32(1)
_TOP: Final = np.float32(2**31)
_SIGN_BIT: Final = np.int32(-(1 << 31))


class Limits(Struct, frozen=True):
    """A range of floats.

    Args:
        low: what the lowest integer of a type stands for.
        high: what the highest stands for.
    """

    low: np.float32
    high: np.float32

    @property
    def span(self) -> np.float32:
        """How wide the range is, in single precision."""
        span: np.float32 = self.high - self.low
        return span

    @property
    def is_empty(self) -> bool:
        """Whether both ends are the same."""
        return bool(self.low == self.high)

    def outputs(self) -> tuple[Array, Array]:
        """Both ends as a kernel gives them."""
        return np.asarray(self.low), np.asarray(self.high)


class Steps(Struct, frozen=True):
    """What an integer type divides a range into.

    Args:
        lowest: the lowest integer.
        highest: the highest.
    """

    lowest: int
    highest: int

    @property
    def count(self) -> int:
        """How many integers there are."""
        return self.highest - self.lowest + 1


@lru_cache(maxsize=16)
def steps_of(kind: Kind) -> Steps:
    """The integers of a type."""
    info = np.iinfo(kind)
    return Steps(int(info.min), int(info.max))


def flushed(x: Array) -> Array:
    """Floats with zeros for denormal numbers, as TensorFlow has the processor take them."""
    denormal = np.abs(x) < np.finfo(x.dtype).tiny
    return np.where(denormal, np.copysign(x.dtype.type(0), x), x) if denormal.any() else x


def round_half_away(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round in place to whole numbers, halves away from zero, as C's ``roundf``."""
    # The same as copysign, which numpy takes several times as long for.
    half = np.bitwise_and(x.view(np.int32), _SIGN_BIT)
    half |= _ALMOST_HALF_BITS
    x += half.view(np.float32)
    return np.trunc(x, out=x)


def rounded(x: float | np.floating[Any]) -> float:
    """The nearest whole number, halves away from zero, as C's ``round``; NaN is NaN."""
    # In double precision, also where x is one of numpy's floats.
    x = float(x)
    return float(np.trunc(x + math.copysign(_ALMOST_HALF, x)))


def as_int64(x: float) -> int:
    """A double cut to an integer as the processor cuts it: what does not fit is the lowest one."""
    return int(x) if abs(x) < -_LOWEST_INT64 else _LOWEST_INT64


def as_integers(x: Array, kind: Kind, missing: int = 0) -> Array:
    """Floats cut to integers of a type.

    Args:
        x: the floats. The highest integer of 32 bits is none: 2**31, which stands for it, becomes
            the lowest.
    """
    finite = np.isfinite(x)
    if not finite.all():
        x = np.where(finite, x, np.float32(missing))
    return x.astype(kind) if kind.itemsize < 4 else x.astype(np.int64).astype(kind)


def wrapped(x: int, bits: int) -> int:
    """The signed integer of some bits that has the lower bits of another."""
    half = 1 << (bits - 1)
    return (x + half) % (2 * half) - half


def level(x: float, limits: Limits, kind: Kind) -> int:
    """The integer next to a float by the rule in double precision, maybe beyond the type."""
    steps = steps_of(kind)
    if limits.is_empty:
        return steps.lowest
    scale = steps.count / (np.float64(limits.span) * (steps.count / (steps.count - 1.0)))
    found = as_int64(rounded(x * scale) - rounded(np.float64(limits.low) * scale))
    return wrapped(found + steps.lowest, 64)


def to_integer(x: float, limits: Limits, kind: Kind) -> int:
    """The integer of a type next to a float, by the rule in double precision."""
    steps = steps_of(kind)
    return min(max(level(x, limits, kind), steps.lowest), steps.highest)


def to_integers(x: Array | np.float32, limits: Limits, kind: Kind) -> Array:
    """``to_integer`` for each of a table's floats."""
    flat = [to_integer(float(v), limits, kind) for v in x.reshape(-1)]
    return np.array(flat, dtype=kind).reshape(x.shape)


def offset_of_zero(limits: Limits, kind: Kind) -> int:
    """The integer that stands for 0.0, maybe beyond the type, cut to 32 bits."""
    return wrapped(level(0.0, limits, kind), 32)


def to_floats(values: Array, limits: Limits) -> NDArray[np.float32]:
    """What a table's integers stand for, by the rule in double precision."""
    steps = steps_of(values.dtype)
    if limits.is_empty:
        return np.full(values.shape, limits.low, dtype=np.float32)
    scale = np.float64(limits.span) * (steps.count / (steps.count - 1.0)) / steps.count
    narrow = np.float32(scale)
    origin = np.float32(rounded(np.float32(limits.low / narrow))) * narrow
    # Through single precision, as the original's integer types are converted.
    offset = values.astype(np.float32).astype(np.float64) - steps.lowest
    out: NDArray[np.float32] = (np.float64(origin) + offset * scale).astype(np.float32)
    return out


def through_int32(values: Array) -> NDArray[np.float32]:
    """Quantized integers as single-precision numbers that have been plain integers in between.

    The original makes plain integers of quantized ones by way of single precision: what 2**31 is
    the nearest float to, becomes the lowest integer of 32 bits.
    """
    out = values.astype(np.float32)
    np.negative(out, where=out >= _TOP, out=out)
    return out


def in_blocks(work: Callable[[slice], None], size: int) -> None:
    """Do something with all parts of a flat array, each small enough for a core's cache."""
    for_each(work, [slice(start, start + _BLOCK) for start in range(0, size, _BLOCK)])


def looked_up(table: Array, values: Array) -> Array:
    """The entry of a table for each eight-bit number.

    Args:
        values: uint8 or int8 of any shape.
    """
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    out = np.empty(flat.size, dtype=table.dtype)

    # numpy makes indices of eight bytes: of all numbers at once, they would fill the memory.
    def look_up(part: slice) -> None:
        table.take(flat[part], out=out[part], mode="clip")

    in_blocks(look_up, flat.size)
    return out.reshape(values.shape)


# The largest float below 2**31, which the original clips 32-bit results to.
_HIGHEST: Final = np.float32(2147483520)


class Dequantizer(Struct, frozen=True):
    """The rule from integers to floats: origin + integer * scale."""

    origin: np.float32
    scale: np.float32

    @classmethod
    def of(cls, limits: Limits, kind: Kind) -> Dequantizer:
        """The rule for a type's integers over a range."""
        steps = steps_of(kind)
        scale = np.float32(np.float64(limits.span) / (steps.count - 1.0))
        low = limits.low
        if not limits.is_empty:
            low = np.float32(rounded(np.float32(limits.low / scale))) * scale
        return cls(np.float32(low - np.float32(steps.lowest) * scale), scale)

    def __call__(self, values: Array) -> NDArray[np.float32]:
        """What the integers stand for."""
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
    """The rule from floats to integers: round(float * scale) - origin."""

    scale: np.float32
    origin: np.float32
    kind: Kind

    @classmethod
    def of(cls, limits: Limits, kind: Kind) -> Quantizer:
        """The rule for a type's integers over a range."""
        steps = steps_of(kind)
        scale = np.float32(0)
        if not limits.is_empty:
            scale = np.float32((steps.count - 1.0) / np.float64(limits.span))
        low = np.float32(rounded(np.float32(limits.low * scale)))
        return cls(scale, np.float32(low - np.float32(steps.lowest)), kind)

    def __call__(self, x: NDArray[np.float32]) -> Array:
        """The integers next to floats; beyond the range, its ends."""
        steps = steps_of(self.kind)
        lowest, highest = np.float32(steps.lowest), min(np.float32(steps.highest), _HIGHEST)
        # NaN becomes the lowest integer of 32 bits, of which narrower types keep the zeros.
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
    """The nearest eight-bit number for each value; numbers beyond the range become 0 or 255.

    Args:
        values: finite float32 of any shape.
        low: what 0 stands for.

    Source: ``FloatToQuantized`` of TensorFlow's quantization utilities, to the last bit: the scale
    and the products are in double precision, halves are rounded away from zero.
    """
    scale = STEPS / (float(high - low) * (STEPS / (STEPS - 1.0)))
    lowest = _rounded(np.array([float(low) * scale]))[0]
    flat = values.reshape(-1)
    out = np.empty(flat.size, dtype=np.uint8)
    work, offset = np.empty((2, min(_BLOCK, flat.size)), dtype=np.float64)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        scaled = work[: block.size]
        scaled[:] = block
        scaled *= scale
        _round(scaled, offset[: block.size])
        scaled -= lowest
        np.clip(scaled, 0, STEPS - 1, out=scaled)
        out[start : start + _BLOCK] = scaled
    return out.reshape(values.shape)


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _round(values, np.empty_like(values))
    return values


def _round(values: NDArray[np.float64], work: NDArray[Any]) -> None:
    """Round in place to the nearest whole numbers, halves away from zero, as C's ``round``."""
    np.copysign(_ALMOST_HALF, values, out=work)
    values += work
    np.trunc(values, out=values)


# Elements of a block: what is read and written of it stays in a core's own cache.
_CLIPPING_BLOCK = 1 << 16


def clipped(x: Array, least: float, most: float) -> Array:
    """A copy whose elements below ``least`` or above ``most`` are these; NaN stays."""
    low, high = x.dtype.type(least), x.dtype.type(most)
    out = allocated(x.shape, x.dtype)
    source, target = np.ascontiguousarray(x).reshape(-1), out.reshape(-1)

    def work(start: int) -> None:
        block = slice(start, start + _CLIPPING_BLOCK)
        # One pass even for two bounds, and faster than a maximum with a scalar.
        np.clip(source[block], low, high, out=target[block])

    for_each(work, range(0, source.size, _CLIPPING_BLOCK))
    return out
