"""TensorFlow's rules between quantized integers and the floats that they stand for.

An integer type is laid over a range of floats: its lowest integer stands for the range's low end,
its highest for the high end. There is one rule in double precision, which scalars and tables go
through, and one in single precision for whole tensors; they round differently.

What overflows or is NaN goes the way that the original's processor takes it; numpy's warnings of
that are for the caller to silence, as the interpreter does.

Source: ``quantization_utils.h`` of TensorFlow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array
from mobileprep.numerics.parallel import for_each

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


@dataclass(frozen=True, slots=True)
class Limits:
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


@dataclass(frozen=True, slots=True)
class Steps:
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


def rounded(x: float) -> float:
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
        kind: the type.
        missing: what NaN and infinities become.
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


def to_integers(x: Array, limits: Limits, kind: Kind) -> Array:
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
        table: 256 entries, in the order of ``EVERY_BYTE``.
        values: uint8 or int8 of any shape.
    """
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    out = np.empty(flat.size, dtype=table.dtype)

    # numpy makes indices of eight bytes: of all numbers at once, they would fill the memory.
    def look_up(part: slice) -> None:
        table.take(flat[part], out=out[part], mode="clip")

    in_blocks(look_up, flat.size)
    return out.reshape(values.shape)
