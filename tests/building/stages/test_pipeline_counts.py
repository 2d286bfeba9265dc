"""Percentiles of the number of runs."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from mobileprep.building.stages.pipeline.run import Count, binomial_percentile
from mobileprep.building.stages.pipeline.spec import Amounts


def exact_percentile(trials: int, rate: Fraction) -> int:
    """The percentile with exact arithmetic."""
    total = Fraction(0)
    for k in range(trials + 1):
        total += math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k)
        if total >= Fraction(19, 20):
            return k
    return trials


@pytest.mark.parametrize("trials", [0, 1, 2, 7, 40, 333])
@pytest.mark.parametrize("rate", ["0", "0.001", "0.05", "0.3", "0.5", "0.77", "0.999", "1"])
def test_percentile_is_exact(trials: int, rate: str) -> None:
    assert binomial_percentile(trials, float(rate)) == exact_percentile(trials, Fraction(rate))


def test_percentile_of_a_billion() -> None:
    # Mean 250 million, standard deviation 13,693.06; the normal quantile of 0.95 is 1.644854.
    percentile = binomial_percentile(10**9, 0.25)
    assert percentile == pytest.approx(250_000_000 + 1.644854 * 13_693.06, abs=2)


def test_rates_multiply() -> None:
    count = Count.of(100).passed(0.5).passed(0.5)
    # A binomial of 100 trials at 0.25: at most 31 with 0.9307, at most 32 with 0.9554.
    assert count.amounts == Amounts(25, 32, 100)
