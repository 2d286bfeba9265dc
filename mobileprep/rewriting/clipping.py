"""The range of weights that loses least to rounding and clipping, for a number of bits."""

from __future__ import annotations

from typing import Final

import numpy as np

from mobileprep.ir.tensor import Array

_BINS: Final = 4096
"""Sixteen bins to a step of eight bits: what a bin hides is a thousandth of the rounding error."""
_SHARES: Final = np.linspace(1.0, 0.02, 50).tolist()
_COARSE: Final = np.geomspace(1.0, 0.02, 16).tolist()
_ROUNDS: Final = 2
_BLOCK: Final = 1 << 18
_CODES: Final = 1 << 8
_MANY: Final = 4 * _CODES
# Of Python: a numpy number would have the width of a range cast to its own type.
_LEAST_WIDTH: Final = float(np.finfo(np.float32).tiny)
# Within such a range the sum and the difference of two float32 numbers are finite.
_MOST_WIDTH: Final = float(np.finfo(np.float32).max) / 2


def best_range(values: Array, bits: int) -> tuple[float, float]:
    """The range with the least mean squared error of weights that are stored in few bits.

    The range holds zero and ``2 ** bits - 1`` equal steps, and what lies outside of it takes its
    ends. Errors are measured over a histogram.

    Source: Choukroun et al., Low-bit Quantization of Neural Networks for Efficient Inference
    (2019), which minimizes the same error over symmetric ranges.

    Args:
        values: finite floats, one at least.
        bits: 2 to 8.
    """
    low, high = range_with_zero(values)
    if not high - low > _LEAST_WIDTH:
        return low, high
    # numpy looks for the bins in the type of the values.
    wide = values if high - low < _MOST_WIDTH else values.astype(np.float64)
    counts, edges = np.histogram(wide, _BINS, (low, high))
    used = counts > 0
    centres, counts = ((edges[:-1] + edges[1:]) / 2)[used], counts[used]

    def error(limits: tuple[float, float]) -> float:
        return _error(centres, counts, limits, bits)

    # Both ends at once first: moving one alone gains nothing where the other decides the step.
    best = min(((low * a, high * b) for a in _COARSE for b in _COARSE), key=error)
    for _ in range(_ROUNDS):
        best = min(((low * share, best[1]) for share in _SHARES), key=error)
        best = min(((best[0], high * share) for share in _SHARES), key=error)
    whole = (low, high)
    gains = rounding_error(values, best, bits) < rounding_error(values, whole, bits)
    return best if gains else whole


def range_with_zero(values: Array) -> tuple[float, float]:
    """From the least to the greatest of some floats, or to zero where that lies outside."""
    return min(float(values.min()), 0.0), max(float(values.max()), 0.0)


def rounded(values: Array, limits: tuple[float, float], bits: int) -> Array:
    """Weights as they come back from few bits, in double precision.

    They are multiples of the step, as Dequantize by the rule MIN_FIRST gives them.

    Args:
        values: floats.
        limits: the numbers that the least and the greatest code stand for.
        bits: how many bits a code has.
    """
    low, high = limits
    steps = (1 << bits) - 1
    step = (high - low) / steps
    if step <= 0:
        return np.full(values.shape, low)
    lowest = np.rint(low / step)
    multiples = np.clip(np.rint(values / np.float64(step)), lowest, lowest + steps)
    back: Array = multiples * step
    return back


def rounding_error(values: Array, limits: tuple[float, float], bits: int) -> float:
    """The sum of the squared errors of weights that are stored in few bits."""
    flat = values.reshape(-1)
    blocks = (flat[i : i + _BLOCK] for i in range(0, flat.size, _BLOCK))
    return sum(float(np.square(rounded(b, limits, bits) - b).sum()) for b in blocks)


def _error(centres: Array, counts: Array, limits: tuple[float, float], bits: int) -> float:
    return float((np.square(rounded(centres, limits, bits) - centres) * counts).sum())


def has_few_values(values: Array) -> bool:
    """Whether many weights have so few different values that 8 bits were enough for them before."""
    flat = values.reshape(-1)
    if flat.size < _MANY or np.unique(flat[:_MANY]).size > _CODES:
        return False
    return np.unique(flat).size <= _CODES
