"""Histograms of observed values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mobileprep.ops.numerics.parallel import all_processors
from mobileprep.ops.numerics.ranges import BINS, MOST_COUNTED, Histogram, ObservedValues

_FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
_PARTS = st.lists(
    arrays.arrays(np.float32, st.integers(0, 30), elements=_FLOATS), min_size=1, max_size=6
)


def observed(*parts: np.ndarray) -> ObservedValues:
    values = ObservedValues(histogram=Histogram())
    for part in parts:
        assert values.add(np.asarray(part, np.float32))
    return values


def state(values: ObservedValues) -> tuple[object, ...]:
    assert values.histogram is not None
    counts = values.histogram.counts.tobytes()
    return values.low, values.high, values.count, values.histogram.exponent, counts


@given(_PARTS, st.randoms())
@settings(deadline=None)
def test_result_is_independent_of_order_and_parts(parts, random) -> None:
    serial = observed(*parts)
    shuffled = random.sample(parts, len(parts))
    whole = observed(np.concatenate(shuffled))
    merged = ObservedValues(histogram=Histogram())
    for part in shuffled:
        merged.merge(observed(part))
    assert state(serial) == state(whole) == state(merged)


@given(arrays.arrays(np.float32, st.integers(1, 50), elements=_FLOATS))
@settings(deadline=None)
def test_every_value_is_within_its_bin(values) -> None:
    histogram = observed(values).histogram
    assert histogram is not None
    edges = histogram.edges()
    for value in values.astype(np.float64):
        one = np.zeros(2 * BINS + 1, np.int64)
        place = int(np.trunc(value / 2.0 ** (histogram.exponent or 0))) + BINS
        one[place] = 1
        assert edges[place] <= value <= edges[place + 1]
    assert histogram.counts.sum() == values.size


@pytest.mark.parametrize(
    "values",
    [
        [3.5],
        [0.0, -0.0],
        [-7.0, -1.0, -0.5],
        [1e-45, -1e-45, 3e-45],
        [1e-40, 1.0, -1e-45],
        [3.4028235e38, -3.4028235e38, 1e-45],
        [1.0] * 99 + [1e30],
    ],
)
def test_extreme_values_are_counted_exactly(values) -> None:
    histogram = observed(values).histogram
    assert histogram is not None
    exponent = histogram.exponent or 0
    expected = np.zeros(2 * BINS + 1, np.int64)
    for value in np.asarray(values, np.float32).astype(np.float64):
        expected[int(np.trunc(value / 2.0**exponent)) + BINS] += 1
    assert histogram.counts.tolist() == expected.tolist()
    # Narrower bins would not hold the largest value.
    largest = float(np.abs(np.asarray(values, np.float32)).max())
    assert largest == 0 or BINS / 2 <= largest / 2.0**exponent < BINS


def test_result_is_independent_of_threads() -> None:
    values = np.random.default_rng(1).normal(size=300_001).astype(np.float32)
    alone = observed(values)
    with all_processors():
        shared = observed(values)
    assert state(alone) == state(shared)


def test_large_tensors_are_sampled_evenly() -> None:
    values = np.tile(np.arange(24, dtype=np.float32), MOST_COUNTED // 8)
    result = observed(values.reshape(-1, 24))
    assert (result.low, result.high, result.count) == (0, 23, values.size)
    assert result.histogram is not None
    counts = result.histogram.counts
    assert MOST_COUNTED / 2 < counts.sum() <= MOST_COUNTED + 24
    nonzero = counts[counts > 0]
    assert len(nonzero) == 24
    assert nonzero.max() - nonzero.min() <= 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused(value) -> None:
    result = ObservedValues(histogram=Histogram())
    assert not result.add(np.array([1, value, 2], np.float32))
    assert result.count == 0
    assert result.histogram is not None
    assert not result.histogram.counts.any()


def test_empty_tensor_adds_no_values() -> None:
    result = observed(np.zeros((0, 3)))
    assert (result.count, result.low, result.high) == (0, np.inf, -np.inf)
