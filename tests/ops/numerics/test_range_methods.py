"""Range methods, compared with their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mobileprep.ops.numerics.ranges import BINS, Histogram, ObservedValues, observed_range

METHODS = ["min_max", "percentile", "entropy", "mse"]


def range_of(values: object, method: str, percentile: float = 99.0) -> tuple[float, float]:
    observed = ObservedValues(histogram=None if method == "min_max" else Histogram())
    assert observed.add(np.asarray(values, np.float32))
    return observed_range(observed, method, percentile)


def rounding_error(values: np.ndarray, low: float, high: float) -> float:
    """The mean squared error of 256 levels over a range widened to include zero."""
    low, high = min(low, 0.0), max(high, 0.0)
    step = (high - low) / 255
    zero = round(-low / step)
    levels = np.clip(np.round(values / step) + zero, 0, 255)
    return float(np.mean(((levels - zero) * step - values) ** 2))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [0.0, -2.5, 1e-45, 3.4028235e38])
def test_range_of_one_value(method, value) -> None:
    single = float(np.float32(value))
    assert range_of([value] * 5, method) == (single, single)


@pytest.mark.parametrize("method", METHODS)
@given(
    values=arrays.arrays(np.float32, st.integers(1, 60), elements=st.floats(-1e6, 1e6, width=32))
)
@settings(deadline=None, max_examples=25)
def test_range_is_within_the_values(method, values) -> None:
    low, high = range_of(values, method)
    assert values.min() <= low <= high <= values.max()


@pytest.mark.parametrize("method", METHODS)
def test_range_of_negative_values(method) -> None:
    values = -np.random.default_rng(2).uniform(1, 5, 5000)
    low, high = range_of(values, method)
    assert low >= values.astype(np.float32).min()
    assert high <= values.astype(np.float32).max()
    assert low < -4


@pytest.mark.parametrize("method", ["percentile", "entropy", "mse"])
def test_single_outlier_is_clipped(method) -> None:
    values = np.append(np.random.default_rng(3).normal(size=200_000), 60.0)
    low, high = range_of(values, method)
    assert -6 < low < -1
    assert 1 < high < 50


def test_min_max_includes_outliers() -> None:
    assert range_of([-1, 0, 60], "min_max") == (-1, 60)


@pytest.mark.parametrize("percentile", [50.0, 90.0, 99.0, 99.99, 100.0])
def test_percentile_range(percentile) -> None:
    values = np.random.default_rng(4).normal(size=20_001).astype(np.float32)
    low, high = range_of(values, "percentile", percentile)
    cut = int(len(values) * (100 - percentile) / 200)
    in_order = np.sort(values)
    width = 8 / BINS  # the bins' at most, for values up to 8
    assert in_order[cut] - width <= low <= in_order[cut]
    assert in_order[-1 - cut] <= high <= in_order[-1 - cut] + width


def test_mse_range_is_close_to_the_optimum() -> None:
    values = np.random.default_rng(5).laplace(size=50_000).astype(np.float32)
    error = rounding_error(values, *range_of(values, "mse"))
    ends = np.linspace(0.5, values.max(), 60)
    best = min(rounding_error(values, -e, f) for e in ends for f in ends)
    # The method assumes a uniform rounding error and searches a grid of 256 ends.
    assert error <= 1.05 * best
    assert error < rounding_error(values, values.min(), values.max())


def test_entropy_range_matches_its_definition() -> None:
    """The first end of least divergence, computed value by value."""
    values = np.random.default_rng(6).normal(size=4_000).astype(np.float32)
    histogram = Histogram()
    histogram.add(values, float(np.abs(values).max()))
    magnitudes = [int(n) for n in histogram.counts[BINS:]]
    for place in range(1, BINS + 1):
        magnitudes[place] += int(histogram.counts[BINS - place])
    magnitudes[0] = magnitudes[1]
    losses = {}
    for end in range(128, BINS + 1, 8):
        p = [float(n) for n in magnitudes[:end]]
        p[-1] += sum(magnitudes[end:])
        q = [0.0] * end
        for level in range(128):
            members = [i for i in range(end) if i * 128 // end == level and magnitudes[i]]
            for i in members:
                q[i] = sum(magnitudes[j] for j in members) / len(members)
        total, spread = sum(p), sum(q)
        q = [x / spread for x in q]
        if any(a and not b for a, b in zip(p, q, strict=True)):
            q = [max(x, 1 / spread) for x in q]
        losses[end] = sum(a / total * np.log(a / total / b) for a, b in zip(p, q, strict=True) if a)
    least = min(losses.values())
    low, high = range_of(values, "entropy")
    width = 2.0 ** (histogram.exponent or 0)
    near = [end * width for end, loss in losses.items() if loss < least + 1e-9]
    assert max(-low, high) in near or max(-low, high) == np.abs(values).max()
