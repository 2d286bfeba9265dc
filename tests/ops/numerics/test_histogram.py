"""Histograms: what is counted where, and sums over parts that are exactly the whole."""

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
    found = ObservedValues(histogram=Histogram())
    for part in parts:
        assert found.add(np.asarray(part, np.float32))
    return found


def told(values: ObservedValues) -> tuple[object, ...]:
    assert values.histogram is not None
    counts = values.histogram.counts.tobytes()
    return values.low, values.high, values.count, values.histogram.exponent, counts


@given(_PARTS, st.randoms())
@settings(deadline=None)
def test_any_order_and_any_cut_give_the_same_bit_for_bit(parts, random) -> None:
    serial = observed(*parts)
    shuffled = random.sample(parts, len(parts))
    whole = observed(np.concatenate(shuffled))
    merged = ObservedValues(histogram=Histogram())
    for part in shuffled:
        merged.merge(observed(part))
    assert told(serial) == told(whole) == told(merged)


@given(arrays.arrays(np.float32, st.integers(1, 50), elements=_FLOATS))
@settings(deadline=None)
def test_every_value_lies_within_its_bin(values) -> None:
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
def test_odd_values_are_counted_exactly(values) -> None:
    histogram = observed(values).histogram
    assert histogram is not None
    exponent = histogram.exponent or 0
    expected = np.zeros(2 * BINS + 1, np.int64)
    for value in np.asarray(values, np.float32).astype(np.float64):
        expected[int(np.trunc(value / 2.0**exponent)) + BINS] += 1
    assert histogram.counts.tolist() == expected.tolist()
    # No narrower bins would hold the largest.
    largest = float(np.abs(np.asarray(values, np.float32)).max())
    assert largest == 0 or BINS / 2 <= largest / 2.0**exponent < BINS


def test_threads_count_the_same_as_one() -> None:
    values = np.random.default_rng(1).normal(size=300_001).astype(np.float32)
    alone = observed(values)
    with all_processors():
        shared = observed(values)
    assert told(alone) == told(shared)


def test_of_very_many_values_some_of_every_channel_are_counted() -> None:
    values = np.tile(np.arange(24, dtype=np.float32), MOST_COUNTED // 8)
    found = observed(values.reshape(-1, 24))
    assert (found.low, found.high, found.count) == (0, 23, values.size)
    assert found.histogram is not None
    counts = found.histogram.counts
    assert MOST_COUNTED / 2 < counts.sum() <= MOST_COUNTED + 24
    seen = counts[counts > 0]
    assert len(seen) == 24
    assert seen.max() - seen.min() <= 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_without_a_place_are_told_and_not_counted(value) -> None:
    found = ObservedValues(histogram=Histogram())
    assert not found.add(np.array([1, value, 2], np.float32))
    assert found.count == 0
    assert found.histogram is not None
    assert not found.histogram.counts.any()


def test_nothing_is_no_value() -> None:
    found = observed(np.zeros((0, 3)))
    assert (found.count, found.low, found.high) == (0, np.inf, -np.inf)
