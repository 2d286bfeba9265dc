"""Range methods, compared with their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mobileprep.ops.numerics.parallel import all_processors
from mobileprep.ops.numerics.ranges import (
    BINS,
    MOST_COUNTED,
    SHARES,
    Histogram,
    ObservedValues,
    channel_steps,
    observed_range,
)

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


RNG = np.random.default_rng(11)
WEIGHTS = RNG.normal(size=(3, 3, 4, 5)).astype(np.float32) * np.float32([1, 64, 1e-3, 7, 0.5])


def error(weights: np.ndarray, steps: np.ndarray, most: int) -> np.ndarray:
    quantized = np.clip(np.rint(weights / steps), -most, most) * steps
    return np.square(quantized - weights).sum((0, 1, 2))


def test_min_max_uses_the_largest_weight_of_each_channel() -> None:
    steps = channel_steps(WEIGHTS, (-1,), "min_max", 127)
    assert steps.shape == (1, 1, 1, 5)
    largest = np.abs(WEIGHTS).max((0, 1, 2))
    assert steps.reshape(-1) * 127 == pytest.approx(largest, rel=1e-6)  # of float32


def test_depthwise_filters_have_two_channel_axes() -> None:
    steps = channel_steps(WEIGHTS, (-2, -1), "min_max", 127)
    assert steps.shape == (1, 1, 4, 5)
    for at in np.ndindex(4, 5):
        one = channel_steps(WEIGHTS[..., at[0], at[1], None], (-1,), "min_max", 127)
        assert steps[0, 0, at[0], at[1]] == one.item()


@pytest.mark.parametrize("most", [1, 3, 7, 127])
def test_mse_uses_the_best_share_per_channel(most: int) -> None:
    weights = WEIGHTS.copy()
    weights[0, 0, 0] *= 20
    widest = channel_steps(weights, (-1,), "min_max", most)
    errors = error(weights, channel_steps(weights, (-1,), "mse", most), most)
    candidates = np.stack([error(weights, widest * np.float32(share), most) for share in SHARES])
    assert (errors == candidates.min(0)).all()
    alone = channel_steps(weights[..., 2:3], (-1,), "mse", most)
    assert alone.item() == channel_steps(weights, (-1,), "mse", most)[..., 2].item()


def test_mse_clips_outliers() -> None:
    weights = np.append(RNG.normal(size=1000), 8).astype(np.float32)[:, np.newaxis]
    wide = channel_steps(weights, (-1,), "min_max", 3)
    narrow = channel_steps(weights, (-1,), "mse", 3)
    assert narrow < wide


@pytest.mark.parametrize("method", ["min_max", "percentile", "entropy", "mse"])
@pytest.mark.parametrize("value", [0, 1e-42, -1e-40])
def test_zero_and_denormal_channels_have_valid_steps(method, value: float) -> None:
    weights = np.full((4, 2), value, np.float32)
    weights[:, 1] = [-3, 1, 2, 0.5]
    steps = channel_steps(weights, (-1,), method, 127).reshape(-1)
    assert steps[0] == 1 or method == "mse"
    assert np.isfinite(steps).all()
    assert (steps >= np.finfo(np.float32).tiny).all()


def test_empty_weights_have_steps_of_one() -> None:
    assert channel_steps(np.zeros((0, 3), np.float32), (-1,), "min_max", 127).tolist() == [
        [1, 1, 1]
    ]


def test_percentile_is_computed_per_channel() -> None:
    weights = np.arange(1, 2001, dtype=np.float32).reshape(1000, 2) * np.float32([1, -1])
    steps = channel_steps(weights, (-1,), "percentile", 127, 99).reshape(-1)
    # Each channel has every other number; ten of a thousand are outside.
    assert steps * 127 == pytest.approx([1979, 1980], rel=1e-6)  # of float32
    few = channel_steps(weights[:99], (-1,), "percentile", 127, 99).reshape(-1)
    assert few * 127 == pytest.approx([197, 198], rel=1e-6)


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_channels_are_independent(method) -> None:
    weights = RNG.normal(size=(400, 3, 2)).astype(np.float32) * np.float32([1, 50])
    weights[0] = 300
    steps = channel_steps(weights, (-2, -1), method, 127, 99.5)
    assert steps.shape == (1, 3, 2)
    for at in np.ndindex(3, 2):
        one = channel_steps(weights[:, at[0], at[1], None], (-1,), method, 127, 99.5)
        assert steps[0, at[0], at[1]] == one.item()
    assert (steps * 127 < 299).all()


def test_entropy_clips_outliers_but_not_uniform_weights() -> None:
    even = np.linspace(-1, 1, 4001, dtype=np.float32)[:, None]
    assert channel_steps(even, (-1,), "entropy", 127) * 127 == pytest.approx(1, rel=0.01)
    far = RNG.normal(size=(20000, 1)).astype(np.float32)
    far[0] = 40
    assert channel_steps(far, (-1,), "entropy", 127) * 127 < 10
    coarse = channel_steps(far, (-1,), "entropy", 7) * 7
    assert coarse < channel_steps(far, (-1,), "entropy", 127) * 127


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_sparse_or_few_weights_are_not_clipped(method) -> None:
    lonely = np.zeros((30000, 1), np.float32)
    lonely[7] = -2
    assert channel_steps(lonely, (-1,), method, 127) * 127 == pytest.approx(2, rel=0.01)
    for values in ([5.0], [-5.0], [-5.0] * 200, [0.1, 5.0]):
        few = np.array(values, np.float32)[:, None]
        assert channel_steps(few, (-1,), method, 127) * 127 == pytest.approx(5, rel=0.01)


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
