"""What is kept of the values of a tensor: ends, and how many lie where."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.numerics.histogram import Histogram
from mobileprep.numerics.parallel import for_each

# Enough for a pass to be worth a thread.
_BLOCK: Final = 1 << 16
MOST_COUNTED: Final = 1 << 18
"""How many values a histogram counts of those that are added at once."""


@dataclass
class ObservedValues:
    """The values of a tensor, as much of them as the methods need.

    The ends are those of all values. Of more than ``MOST_COUNTED`` that are added at once, the
    histogram counts some that are spread evenly over them: a convolution's output has millions for
    each picture, and counting them would take longer than the convolution.

    Args:
        low: the least; infinity where there are none.
        high: the greatest; minus infinity where there are none.
        count: how many.
        histogram: how many lie where; None where no method asks.
    """

    low: float = np.inf
    high: float = -np.inf
    count: int = 0
    histogram: Histogram | None = field(default=None)

    def add(self, values: NDArray[Any], known: tuple[float, float] | None = None) -> bool:
        """Take note of float32 values; whether all of them are finite, else none is noted.

        Args:
            values: of any shape.
            known: their least and greatest, where they are known.
        """
        if not values.size:
            return True
        low, high = ends(values) if known is None else known
        if not (np.isfinite(low) and np.isfinite(high)):
            return False
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.count += values.size
        if self.histogram is not None:
            self.histogram.add(thinned(values), max(-low, high))
        return True

    def merge(self, other: ObservedValues) -> None:
        """Take note of what another has seen."""
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.count += other.count
        if self.histogram is not None and other.histogram is not None:
            self.histogram.merge(other.histogram)


def thinned(values: NDArray[Any]) -> NDArray[Any]:
    """About ``MOST_COUNTED`` of some values: whole last axes, so every channel, evenly spread."""
    channels, width = (values.shape[-1], values.shape[-2]) if values.ndim > 1 else (1, 1)
    rows = values.reshape(-1, channels)
    step = max(-(-values.size // MOST_COUNTED), 1)
    # A step that has a divisor in common with the width would always meet the same columns.
    while math.gcd(step, width) > 1:
        step += 1
    return rows[::step]


def ends(values: NDArray[Any]) -> tuple[float, float]:
    """The least and the greatest of some values, NaN where one is NaN."""
    flat = values.reshape(-1)
    starts = range(0, flat.size, _BLOCK)
    found = np.empty((2, len(starts)), flat.dtype)

    def note(start: int) -> None:
        part = flat[start : start + _BLOCK]
        found[:, start // _BLOCK] = part.min(), part.max()

    for_each(note, starts)
    # Zero without its sign: which of two zeros is met first depends on the order.
    return float(found[0].min()) + 0.0, float(found[1].max()) + 0.0
