"""Weights as whole numbers of few bits times a scale, one for a tensor or one for each channel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array

_EXACT_BITS: Final = 8
"""From here on the whole range is kept: clipping gains less than one part in a thousand."""
_SOME: Final = 4096
_NOISE: Final = 1e-3
"""What a float32 of some hundred steps may be off by, in steps, and more."""
_SHRINKS: Final = np.linspace(1.0, 0.3, 36)


@dataclass(frozen=True)
class LinearWeights:
    """``(codes - zero) * scale``.

    Args:
        codes: uint8, of the weights' shape, from 0 to ``2 ** bits - 1``.
        zero: the code that stands for zero; ``2 ** (bits - 1)`` unless the steps were given.
        scale: float32, negative where the longer side of the range is the positive one; of a
            shape that broadcasts to the weights'.
    """

    codes: NDArray[np.uint8]
    zero: int
    scale: NDArray[np.float32]

    def decoded(self) -> NDArray[np.float32]:
        """The weights that a runtime decodes, to the bit."""
        whole: NDArray[np.float32] = self.codes.astype(np.float32) - np.float32(self.zero)
        return whole * self.scale


def weights_stored_before(values: Array, bits: int) -> LinearWeights | None:
    """Weights that are multiples of one step already, as they were; None for others.

    Args:
        values: finite floats of any shape.
        bits: how many there are for a code.
    """
    found = np.unique(values.reshape(-1)[:_SOME]).astype(np.float64)
    if found.size < 2 or found.size > 1 << bits:
        return None
    found = np.unique(values).astype(np.float64)
    if found.size > 1 << bits:
        return None
    # The least distance is rounded; over the whole range it is exact enough to count steps by.
    steps = np.rint((found[-1] - found[0]) / np.diff(found).min())
    step = (found[-1] - found[0]) / steps
    codes = np.rint(found / step)
    zero = -int(codes[0])
    off = np.abs(codes * step - found).max()
    if off > _NOISE * step or steps >= 1 << bits or not 0 <= zero < 1 << bits:
        return None
    stored = (np.rint(values / step) + zero).astype(np.uint8)
    return LinearWeights(stored, zero, np.asarray(step, np.float32))


def linear_weights(values: Array, axes: Sequence[int], bits: int) -> LinearWeights:
    """Weights in few bits.

    Codes lie one further on one side of zero than on the other, so each scale has the sign that
    turns that side to the longer one. Below 8 bits each range is shrunk to where the squared error
    is least, as in Banner et al., Post-training 4-bit quantization (2019).

    Args:
        values: finite floats of any shape.
        axes: the dimensions, from the last (-1), that have scales of their own; none for one scale.
        bits: 2 to 8.
    """
    kept = [axis + values.ndim for axis in axes]
    others = tuple(i for i in range(values.ndim) if i not in kept)
    wide = values.astype(np.float64)
    half = 1 << (bits - 1)
    scale = _scale(wide, others, half)
    if bits < _EXACT_BITS:
        scale = _best_scale(wide, others, scale, half)
    codes = (_rounded(wide, scale, half) + half).astype(np.uint8)
    shape = scale.shape[min(kept, default=values.ndim) :]
    return LinearWeights(codes, half, scale.reshape(shape).astype(np.float32))


def _scale(values: Array, others: tuple[int, ...], half: int) -> Array:
    """The scale that makes the whole range fit; one for nothing but zeros."""
    low = values.min(axis=others, keepdims=True, initial=0)
    high = values.max(axis=others, keepdims=True, initial=0)
    longer, shorter = np.maximum(-low, high), np.minimum(-low, high)
    size = np.maximum(longer / half, shorter / (half - 1))
    size = np.where(longer > 0, np.maximum(size, np.finfo(np.float32).tiny), 1.0)
    return _as_float32(np.where(high > -low, -size, size))


def _best_scale(values: Array, others: tuple[int, ...], whole: Array, half: int) -> Array:
    """Of the scales that are somewhat smaller those with the least squared error."""
    best, least = whole, np.full(whole.shape, math.inf)
    for shrink in _SHRINKS:
        scale = _as_float32(whole * shrink)
        off = _rounded(values, scale, half) * scale - values
        error = np.square(off).sum(axis=others, keepdims=True)
        better = error < least
        best, least = np.where(better, scale, best), np.where(better, error, least)
    return best


def _rounded(values: Array, scale: Array, half: int) -> Array:
    rounded: Array = np.clip(np.rint(values / scale), -half, half - 1)
    return rounded


def _as_float32(scale: Array) -> Array:
    """As it will be stored, never too small for a normal number."""
    stored = scale.astype(np.float32).astype(np.float64)
    return np.where(
        np.abs(stored) < np.finfo(np.float32).tiny,
        np.copysign(np.finfo(np.float32).tiny, scale),
        stored,
    )
