"""TensorFlow's rules between quantized integers and the floats that they stand for.

An integer type is laid over a range of floats: its lowest integer stands for the range's low end,
its highest for the high end. There is one rule in double precision, which scalars and tables go
through, and one in single precision for whole tensors; they round differently.

Source: ``quantization_utils.h`` of TensorFlow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.ir.tensor import Array

Kind = np.dtype[Any]

_LOWEST_INT64: Final = np.iinfo(np.int64).min
_BEYOND_INT64: Final = 2.0**63
# The largest float below 2**31, which the original clips 32-bit results to.
_HIGHEST_FLOAT: Final = np.float32(2147483520)
# The largest floats below one half: added before cutting, they round halves away from zero, and
# nothing else up, which adding one half itself does not.
_ALMOST_HALF: Final = {
    np.dtype(t): np.nextafter(np.array(0.5, t), np.array(0, t)) for t in ("f4", "f8")
}


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
        with np.errstate(all="ignore"):
            return np.float32(self.high - self.low)

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
    """Floats with zeros for denormal numbers, which TensorFlow sets the processor to make of them."""
    denormal = np.abs(x) < np.finfo(x.dtype).tiny
    return np.where(denormal, np.copysign(x.dtype.type(0), x), x) if denormal.any() else x


def round_half_away(x: Array) -> Array:
    """Round floats in place to whole numbers, halves away from zero, as C's ``round``."""
    x += np.copysign(_ALMOST_HALF[x.dtype], x)
    np.trunc(x, out=x)
    return x


def as_int64(x: Array) -> NDArray[np.int64]:
    """Doubles cut to integers as the processor cuts them: what does not fit is the lowest one."""
    fits = np.abs(x) < _BEYOND_INT64
    return np.where(fits, x, float(_LOWEST_INT64)).astype(np.int64)


def as_integers(x: Array, kind: Kind) -> Array:
    """Floats cut to integers of a type; NaN and infinities become 0.

    The highest integer of 32 bits is no float: 2**31, which stands for it, becomes the lowest.
    """
    finite = np.isfinite(x)
    if not finite.all():
        x = np.where(finite, x, np.float32(0))
    return x.astype(kind) if kind.itemsize < 4 else x.astype(np.int64).astype(kind)


def levels(x: Array, limits: Limits, kind: Kind) -> NDArray[np.int64]:
    """The integer next to each float by the rule in double precision, maybe beyond the type."""
    steps = steps_of(kind)
    if limits.is_empty:
        return np.full(np.shape(x), steps.lowest, dtype=np.int64)
    with np.errstate(all="ignore"):
        scale = steps.count / (np.float64(limits.span) * (steps.count / (steps.count - 1.0)))
        scaled = np.multiply(np.asarray(x, np.float64), scale, dtype=np.float64)
        origin = round_half_away(np.array(np.float64(limits.low) * scale))
        found = as_int64(round_half_away(np.array(scaled)) - origin)
        return found + np.int64(steps.lowest)


def to_integers(x: Array, limits: Limits, kind: Kind) -> Array:
    """The integer of a type next to each float, by the rule in double precision."""
    steps = steps_of(kind)
    return np.clip(levels(x, limits, kind), steps.lowest, steps.highest).astype(kind)


def to_floats(values: Array, limits: Limits) -> NDArray[np.float32]:
    """What integers stand for, by the rule in double precision."""
    steps = steps_of(values.dtype)
    if limits.is_empty:
        return np.full(values.shape, limits.low, dtype=np.float32)
    with np.errstate(all="ignore"):
        span = np.float64(limits.span) * (steps.count / (steps.count - 1.0))
        scale = span / steps.count
        narrow = np.float32(scale)
        origin = round_half_away(np.array(limits.low / narrow)) * narrow
        offset = values.astype(np.float64) - steps.lowest
        out: NDArray[np.float32] = (np.float64(origin) + offset * scale).astype(np.float32)
        return out


def offset_of_zero(limits: Limits, kind: Kind) -> int:
    """The integer that stands for 0.0, maybe beyond the type, cut to 32 bits."""
    return int(levels(np.float32(0), limits, kind).astype(np.int32).reshape(()))


@dataclass(frozen=True, slots=True)
class Dequantizer:
    """The rule in single precision from integers to floats: origin + integer * scale."""

    origin: np.float32
    scale: np.float32

    @classmethod
    def of(cls, limits: Limits, kind: Kind) -> Dequantizer:
        """The rule for a type's integers over a range."""
        steps = steps_of(kind)
        with np.errstate(all="ignore"):
            scale = np.float32(np.float64(limits.span) / (steps.count - 1.0))
            low = limits.low
            if not limits.is_empty:
                low = np.float32(round_half_away(np.array(limits.low / scale)) * scale)
            return cls(np.float32(low - np.float32(steps.lowest) * scale), scale)

    def __call__(self, values: Array) -> NDArray[np.float32]:
        """What the integers stand for; a new array."""
        out = np.array(values, dtype=np.float32)
        with np.errstate(all="ignore"):
            out *= self.scale
            out += self.origin
        return out


@dataclass(frozen=True, slots=True)
class Quantizer:
    """The rule in single precision from floats to integers: round(float * scale) - origin."""

    scale: np.float32
    origin: np.float32
    kind: Kind

    @classmethod
    def of(cls, limits: Limits, kind: Kind) -> Quantizer:
        """The rule for a type's integers over a range."""
        steps = steps_of(kind)
        with np.errstate(all="ignore"):
            scale = np.float32(0)
            if not limits.is_empty:
                scale = np.float32((steps.count - 1.0) / np.float64(limits.span))
            low = round_half_away(np.array(limits.low * scale))
            return cls(scale, np.float32(low - np.float32(steps.lowest)), kind)

    def __call__(self, x: NDArray[np.float32]) -> Array:
        """The integers next to floats, which are overwritten; those beyond the range at its ends."""
        steps = steps_of(self.kind)
        with np.errstate(all="ignore"):
            x *= self.scale
            round_half_away(x)
            x -= self.origin
            # NaN becomes the lowest integer of 32 bits, of which narrower types keep the zeros.
            hold = np.fmax if self.kind.itemsize == 4 else np.maximum
            hold(x, np.float32(steps.lowest), out=x)
            np.minimum(x, min(np.float32(steps.highest), _HIGHEST_FLOAT), out=x)
            return as_integers(x, self.kind)
