"""How far values in a few bits are from those in float, summed up over any number of arrays.

The measures are those of TensorFlow Lite's quantization debugger
(``tensorflow/lite/tools/optimize/debugging/python/debugger.py``, whose guide names RMSE over scale)
and of ai-edge-quantizer's model validation.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array

# The root mean square of rounding alone, in steps: errors spread evenly over one step.
HEALTHY_RMSE: Final = 1 / math.sqrt(12)
# Signal to noise is told up to here: that of equal values, in dB. float32 itself has about 150.
MOST_DECIBELS: Final = 200.0
# Sums are made in double precision, of so many elements at a time.
_BLOCK: Final = 1 << 16


@dataclass(frozen=True)
class Damage:
    """How far quantized values are from those in float.

    Args:
        elements: how many were compared.
        sqnr: signal to quantization noise in dB, ``10 log10(sum(x^2) / sum((x - y)^2))``, from
            -200 to 200: 200 where nothing differs, -200 where a value is not finite.
        cosine: of the angle between both, as vectors; 1 where both are zeros.
        clipped: the share of float values that lie beyond the quantized range by more than half a
            step; None where there is no range.
        rmse_over_scale: the root mean square of the errors, in steps of the quantized values; None
            where there are no steps. Rounding alone gives 0.289, one over the square root of 12.
    """

    elements: int
    sqnr: float
    cosine: float
    clipped: float | None
    rmse_over_scale: float | None


@dataclass(frozen=True)
class Grid:
    """What quantized values can be.

    Args:
        low: the least, or one for each channel in a shape that the values broadcast to.
        high: the greatest, likewise.
        scale: the difference of two neighbours, likewise.
    """

    low: Array
    high: Array
    scale: Array


class DamageSum:
    """Adds up how far arrays are apart; its size does not depend on how many there are."""

    def __init__(self) -> None:
        self._elements = 0
        self._signal = self._noise = self._other = self._product = 0.0
        self._gridded = self._clipped = 0
        self._squared_steps = 0.0
        self._is_lost = False

    def add(self, expected: Array, found: Array, grid: Grid | None = None) -> None:
        """Count an array in.

        Args:
            expected: the float values.
            found: what stands for them, of the same shape.
            grid: what ``found`` can be, where it is quantized itself.
        """
        self._elements += expected.size
        flat, other = expected.reshape(-1), found.reshape(-1)
        for start in range(0, expected.size, _BLOCK):
            x = flat[start : start + _BLOCK].astype(np.float64)
            y = other[start : start + _BLOCK].astype(np.float64)
            self._is_lost |= not (np.isfinite(x).all() and np.isfinite(y).all())
            self._signal += float(x @ x)
            self._other += float(y @ y)
            self._product += float(x @ y)
            self._noise += float((x - y) @ (x - y))
        if grid is not None:
            self._add_steps(expected, found, grid)

    def _add_steps(self, expected: Array, found: Array, grid: Grid) -> None:
        half = grid.scale / 2
        beyond = (expected < grid.low - half) | (expected > grid.high + half)
        self._clipped += int(np.count_nonzero(beyond))
        errors = (expected.astype(np.float64) - found) / grid.scale
        self._squared_steps += float(np.sum(errors * errors))
        self._gridded += expected.size

    def damage(self) -> Damage:
        """What was counted in."""
        return Damage(
            self._elements,
            self._sqnr(),
            self._cosine(),
            self._clipped / self._gridded if self._gridded else None,
            math.sqrt(self._squared_steps / self._gridded) if self._gridded else None,
        )

    def _sqnr(self) -> float:
        if self._is_lost:
            return -MOST_DECIBELS
        if not self._noise:
            return MOST_DECIBELS
        if not self._signal:
            return -MOST_DECIBELS
        found = 10 * (math.log10(self._signal) - math.log10(self._noise))
        return min(max(found, -MOST_DECIBELS), MOST_DECIBELS)

    def _cosine(self) -> float:
        lengths = math.sqrt(self._signal) * math.sqrt(self._other)
        if self._is_lost or not lengths:
            return 1.0 if not self._is_lost and self._signal == self._other else 0.0
        return self._product / lengths
