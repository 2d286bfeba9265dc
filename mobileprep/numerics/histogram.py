"""Histograms of float32 values whose sums over parts are exactly the histogram of the whole."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.numerics.parallel import for_each

BINS: Final = 2048
"""Bins on each side of the one around zero."""

_LOG_BINS: Final = 11
# Counters that take turns: values after an activation are often equal, and an addition to a counter
# waits for the one before it to the same.
_TURNS: Final = 2
# Small enough to stay in a core's cache with its scaled copy.
_BLOCK: Final = 1 << 15
# Scales beyond this are no normal float32.
_LEAST_SINGLE: Final = -126
# Where the bin around zero is, for each value of a block.
_PLACES: Final = np.arange(_BLOCK) % _TURNS * (2 * BINS + 1) + BINS


@dataclass
class Histogram:
    """How many values lie in which of ``2 * BINS + 1`` bins.

    Bin ``i`` from ``-BINS`` to ``BINS`` holds the values ``x`` whose ``x / 2**exponent``, its
    fraction cut off, is ``i``: all bins have the width ``2**exponent`` but the one around zero,
    which reaches from ``-2**exponent`` to ``2**exponent``. The exponent is the least with which the
    values fit. When it grows, bins are merged; as they are aligned at zero and their widths are
    powers of two, that gives what counting anew would, so that no order of values and no division
    into parts makes a difference.

    Args:
        exponent: of the width, None where all values are zero or there are none.
        counts: int64 of shape [2 * BINS + 1].
    """

    exponent: int | None = None
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2 * BINS + 1, np.int64))

    def add(self, values: NDArray[Any], largest: float) -> None:
        """Count values.

        Args:
            values: finite float32, of any shape.
            largest: their largest magnitude.
        """
        if largest == 0:
            self.counts[BINS] += values.size
            return
        self._widen(_exponent(largest))
        flat = values.reshape(-1)
        lock = threading.Lock()

        def count(start: int) -> None:
            found = self._counted(flat[start : start + _BLOCK])
            with lock:
                self.counts += found

        for_each(count, range(0, flat.size, _BLOCK))

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        if other.exponent is None:
            self.counts += other.counts
            return
        self._widen(other.exponent)
        assert self.exponent is not None
        self.counts += _merged(other.counts, self.exponent - other.exponent)

    def edges(self) -> NDArray[np.float64]:
        """The lower ends of the bins from ``-BINS`` on, and the upper end of the last.

        Of shape [2 * BINS + 2]; the bin around zero reaches from the end before to the one after.
        """
        width = math.ldexp(1.0, self.exponent or 0)
        below = np.arange(-BINS - 1, 0, dtype=np.float64)
        return np.concatenate([below, -below[::-1]]) * width

    def _widen(self, exponent: int) -> None:
        if self.exponent is None:
            self.exponent = exponent
        elif exponent > self.exponent:
            self.counts = _merged(self.counts, exponent - self.exponent)
            self.exponent = exponent

    def _counted(self, values: NDArray[Any]) -> NDArray[np.int64]:
        assert self.exponent is not None
        places = np.empty(values.size, np.int64)
        if self.exponent >= _LEAST_SINGLE:
            scale: np.floating[Any] = np.float32(math.ldexp(1.0, -self.exponent))
        else:
            scale = np.float64(math.ldexp(1.0, -self.exponent))
        # Scaling by a power of two is exact, and the conversion cuts fractions off. What is too
        # small to be scaled exactly is in the bin around zero in either case.
        np.multiply(values, scale, out=places, casting="unsafe")
        places += _PLACES[: places.size]
        counts = np.bincount(places, minlength=_TURNS * (2 * BINS + 1))
        found: NDArray[np.int64] = counts.reshape(_TURNS, -1).sum(axis=0)
        return found


def _exponent(largest: float) -> int:
    """The exponent of the narrowest bins that hold magnitudes up to one."""
    return math.frexp(largest)[1] - _LOG_BINS


def _merged(counts: NDArray[np.int64], steps: int) -> NDArray[np.int64]:
    """Counts in bins that are wider by a power of two."""
    if not steps:
        return counts
    places = np.arange(-BINS, BINS + 1)
    wider = np.sign(places) * (np.abs(places) >> min(steps, _LOG_BINS + 1))
    found = np.zeros_like(counts)
    np.add.at(found, wider + BINS, counts)
    return found
