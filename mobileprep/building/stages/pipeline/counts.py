"""Distribution of the number of runs of a pipeline's steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from mobileprep.building.stages.pipeline.spec import Amounts

_P95: Final = 0.95
# Probabilities below this fraction of the largest one do not affect a percentile.
_NEGLIGIBLE: Final = 1e-18


class Count(Struct, frozen=True):
    """Number of runs, or of windows, of a step for one input.

    Args:
        expected: mean.
        trials: 95th percentile before pass rates: the number that can pass.
        rate: product of the pass rates.
        worst: maximum. In the worst case, everything passes.
    """

    expected: float
    trials: int
    worst: int
    rate: float = 1.0

    @classmethod
    def of(cls, number: int) -> Count:
        """Create the count of a fixed number."""
        return cls(number, number, number)

    def passed(self, rate: float) -> Count:
        """Return how many of them pass, each independently with the same probability."""
        return Count(self.expected * rate, self.trials, self.worst, self.rate * rate)

    @property
    def amounts(self) -> Amounts:
        """Mean, 95th percentile, and maximum."""
        p95 = binomial_percentile(self.trials, self.rate)
        return Amounts(self.expected, p95, self.worst)


def binomial_percentile(trials: int, rate: float, share: float = _P95) -> int:
    """Return the smallest k for which at most k of some trials succeed with a probability.

    Sums the probabilities around the mode, each computed from its neighbor, so that the result
    depends only on basic arithmetic, and is the same on all platforms.
    """
    if rate <= 0 or trials == 0:
        return 0
    if rate >= 1:
        return trials
    odds = rate / (1 - rate)
    mode = min(int((trials + 1) * rate), trials)
    below = list(_below(mode, trials, odds))
    above = list(_above(mode, trials, odds))
    total = math.fsum([1.0, *below, *above])
    k = mode - len(below)
    reached = 0.0
    for weight in (*reversed(below), 1.0, *above):
        reached += weight
        if reached >= share * total:
            return k
        k += 1
    return trials


def _below(mode: int, trials: int, odds: float) -> Iterator[float]:
    """Yield the probabilities of mode - 1, mode - 2, and so on, relative to that of the mode."""
    weight = 1.0
    for k in range(mode, 0, -1):
        weight *= k / ((trials - k + 1) * odds)
        if weight < _NEGLIGIBLE:
            return
        yield weight


def _above(mode: int, trials: int, odds: float) -> Iterator[float]:
    """Yield the probabilities of mode + 1, mode + 2, and so on, relative to that of the mode."""
    weight = 1.0
    for k in range(mode, trials):
        weight *= (trials - k) * odds / (k + 1)
        if weight < _NEGLIGIBLE:
            return
        yield weight
