"""The range of weights with the least rounding and clipping error for a number of bits."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.quantization import STEPS, Dequantizer, Limits, to_quint8

_BINS: Final = 4096
"""16 bins per step of 8 bits: a bin hides a thousandth of the rounding error."""
_SHARES: Final = np.linspace(1.0, 0.02, 50).tolist()
_COARSE: Final = np.geomspace(1.0, 0.02, 16).tolist()
_ROUNDS: Final = 2
_BLOCK: Final = 1 << 18
_CODES: Final = 1 << 8
_MANY: Final = 4 * _CODES
# A Python float: a range's width would be cast to the type of a numpy number.
_LEAST_WIDTH: Final = float(np.finfo(np.float32).tiny)
# Within this range, the sum and difference of two float32 numbers are finite.
_MOST_WIDTH: Final = float(np.finfo(np.float32).max) / 2


def best_range(values: Array, bits: int) -> tuple[float, float]:
    """Return the range with the least mean squared error of weights stored in few bits.

    The range contains zero and has ``2 ** bits - 1`` equal steps; values outside are clipped to its
    ends. Errors are measured on a histogram.

    Source: Choukroun et al., Low-bit Quantization of Neural Networks for Efficient Inference
    (2019), which minimizes the same error over symmetric ranges.

    Args:
        bits: 2 to 8.
    """
    low, high = range_with_zero(values)
    if not high - low > _LEAST_WIDTH:
        return low, high
    # numpy computes the bins in the type of the values.
    wide = values if high - low < _MOST_WIDTH else values.astype(np.float64)
    counts, edges = np.histogram(wide, _BINS, (low, high))
    used = counts > 0
    centers, counts = ((edges[:-1] + edges[1:]) / 2)[used], counts[used]

    def error(limits: tuple[float, float]) -> float:
        return float((np.square(rounded(centers, limits, bits) - centers) * counts).sum())

    # Both ends together first: moving one gains nothing if the other determines the step.
    best = min(((low * a, high * b) for a in _COARSE for b in _COARSE), key=error)
    for _ in range(_ROUNDS):
        best = min(((low * share, best[1]) for share in _SHARES), key=error)
        best = min(((best[0], high * share) for share in _SHARES), key=error)
    whole = (low, high)
    gains = rounding_error(values, best, bits) < rounding_error(values, whole, bits)
    return best if gains else whole


def range_with_zero(values: Array) -> tuple[float, float]:
    """Return the minimum and maximum of some floats, extended to contain zero."""
    return min(float(values.min()), 0.0), max(float(values.max()), 0.0)


def rounded(values: Array, limits: tuple[float, float], bits: int) -> Array:
    """Return weights after quantization to few bits, in double precision.

    They are multiples of the step, as in Dequantize with the mode MIN_FIRST.
    """
    low, high = limits
    steps = (1 << bits) - 1
    step = (high - low) / steps
    if step <= 0:
        return np.full(values.shape, low)
    lowest = np.rint(low / step)
    multiples = np.clip(np.rint(values.astype(np.float64) / step), lowest, lowest + steps)
    back: Array = multiples * step
    return back


def rounding_error(values: Array, limits: tuple[float, float], bits: int) -> float:
    """Return the sum of squared errors of weights stored in few bits."""
    flat = values.reshape(-1)
    blocks = (flat[i : i + _BLOCK] for i in range(0, flat.size, _BLOCK))
    return sum(float(np.square(rounded(b, limits, bits) - b).sum()) for b in blocks)


def has_few_values(values: Array) -> bool:
    """Return whether many weights have so few distinct values that they were stored in 8 bits."""
    flat = values.reshape(-1)
    if flat.size < _MANY or np.unique(flat[:_MANY]).size > _CODES:
        return False
    return np.unique(flat).size <= _CODES


# The original starts its search for a maximum here: it uses the smallest positive normal number of
# C++ instead of the most negative one.
LEAST_MAXIMUM: Final = np.finfo(np.float32).tiny

# Shifts the zero point by a few thousandths of a step, more than single-precision rounding.
_WIDER: Final = np.float32(1 + 2.0**-16)


class EightbitConstant(Struct, frozen=True):
    """8-bit elements, and the numbers that 0 and 255 represent."""

    values: NDArray[np.uint8]
    low: np.float32
    high: np.float32

    def decoded(self) -> NDArray[np.float32]:
        """Return the floats that Dequantize outputs for them, bit-identical."""
        return Dequantizer.of(Limits(self.low, self.high), self.values.dtype)(self.values)


def eightbit_constant(values: Array, *, tf115: bool = False) -> EightbitConstant | None:
    """Quantize a float32 constant to 8 bits; None if its range is not finite.

    The range contains zero. If it is too narrow for Dequantize, as for a constant of zeros, it is 0
    to 1. If zero lies halfway between two steps, as in the range from -x to x, encoder and decoder
    may round it differently, and all floats are off by one step. In this case, the range is
    extended by 1/65536.

    Args:
        tf115: reproduce TensorFlow 1.15, with floats off by one step.

    Source: ``quantize_weights`` of TensorFlow 1.15's graph transforms.
    """
    low, high = value_range(values)
    low, high = min(low, np.float32(0)), max(high, LEAST_MAXIMUM)
    with np.errstate(over="ignore"):
        step = (high - low) / np.float32(STEPS - 1)
    if not np.isfinite(step):
        return None
    if step < LEAST_MAXIMUM:
        low, high = np.float32(0), np.float32(1)
    if not tf115 and not _agree_on_zero(low, high):
        high *= _WIDER
    return EightbitConstant(to_quint8(values, low, high), low, high)


def _agree_on_zero(low: np.float32, high: np.float32) -> bool:
    """Return whether zero is decoded as zero."""
    zero = np.zeros(1, np.float32)
    stored = EightbitConstant(to_quint8(zero, low, high), low, high)
    return not stored.decoded().any()


def value_range(values: Array) -> tuple[np.float32, np.float32]:
    """Return the minimum and maximum of a non-empty float32 array; NaN if it contains NaN."""
    return values.min(), values.max()
