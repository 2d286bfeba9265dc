"""Weights in eight bits: steps, and rounding that keeps the sums of channels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from mobileprep.transforms.quantize_nodes.nodes import EvenSteps
from mobileprep.transforms.quantize_nodes.weights import (
    WeightSettings,
    quantize_weights,
    rounded_with_sums,
    steps_of_lattice,
)
from tests.transforms.graphs import normal

FLOATS = st.floats(-100, 100, width=32)
WEIGHTS = arrays(np.float32, array_shapes(min_dims=2, max_dims=4, max_side=6), elements=FLOATS)


@settings(deadline=None)
@given(FLOATS, FLOATS)
def test_steps_hold_zero_exactly_and_the_range_up_to_half_a_step(a, b):
    low, high = min(a, b), max(a, b)
    steps = EvenSteps.over(low, high)
    assert 0 <= steps.zero <= 255
    assert steps.nearest(np.zeros(1, np.float32)) == steps.zero
    slack = steps.size * 0.501
    assert steps.low <= min(low, 0) + slack
    assert steps.high >= max(high, 0) - slack


def test_the_steps_of_nothing_but_zeros_are_some():
    assert EvenSteps.over(0, 0) == EvenSteps(1.0, 0)


@settings(deadline=None)
@given(WEIGHTS)
def test_rounding_keeps_the_sum_of_each_channel(values):
    found = rounded_with_sums(values, (-1,))
    axes = tuple(range(values.ndim - 1))
    np.testing.assert_array_equal(found, np.rint(found))
    assert np.abs(found - values).max() <= 1
    # A half, and what the sum itself is rounded by.
    gap = np.abs((found - values).sum(axis=axes, dtype=np.float64))
    assert gap.max() <= 0.5 + 1e-3


def test_values_are_rounded_to_the_nearest_step():
    values = np.array([[0.4], [0.3], [0.45], [-0.2]], np.float32)
    assert rounded_with_sums(values, (-1,)).ravel().tolist() == [0, 0, 1, 0]


def test_channels_may_take_two_axes():
    values = normal(3, 3, 4, 2)
    found = rounded_with_sums(values, (-2, -1))
    assert np.abs((found - values).sum(axis=(0, 1))).max() <= 0.5 + 1e-5


def _values(found, axes_shape):
    levels = found.values.astype(np.float32) - found.steps.zero
    scales = 1 if found.scales is None else found.scales.reshape(axes_shape)
    return levels * np.float32(found.steps.size) * scales


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("granularity", ["tensor", "channel"])
def test_weights_are_off_by_a_step_at_most(granularity, bits):
    weights = normal(3, 3, 8, 6, seed=4)
    found = quantize_weights(weights, (-1,), WeightSettings(bits, granularity))
    step = found.steps.size if found.scales is None else found.scales.max()
    # Half a step by rounding, half a step to keep sums, half a step for zero.
    assert np.abs(_values(found, (1, 1, 1, 6)) - weights).max() <= 1.5 * step
    assert found.values.dtype == np.uint8


def test_channels_of_different_sizes_take_steps_of_their_own():
    weights = normal(1, 1, 32, 4) * np.array([1, 8, 64, 512], np.float32)
    found = quantize_weights(weights, (-1,), WeightSettings())
    assert found.scales is not None
    np.testing.assert_allclose(found.scales, np.abs(weights).max(axis=(0, 1, 2)) / 127, rtol=1e-6)


def test_weights_that_lie_on_steps_keep_them():
    weights = (np.random.default_rng(0).integers(0, 256, (1, 1, 32, 8)) - 17) * np.float32(0.01)
    weights[0, 0, 0, :2] = [-0.17, 2.38]
    found = quantize_weights(weights.astype(np.float32), (-1,), WeightSettings())
    assert found.scales is None
    np.testing.assert_allclose(_values(found, ()), weights, atol=1e-5)


@pytest.mark.parametrize("granularity", ["tensor", "channel"])
@pytest.mark.parametrize("value", [0.0, 1e-42, 3.0, -3.0])
def test_weights_of_one_value(value, granularity):
    weights = np.full((1, 1, 4, 3), value, np.float32)
    found = quantize_weights(weights, (-1,), WeightSettings(8, granularity))
    np.testing.assert_allclose(_values(found, (1, 1, 1, 3)), weights, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("granularity", ["tensor", "channel"])
@pytest.mark.parametrize(
    ("method", "percentile"), [("percentile", 99.0), ("entropy", 99.99), ("mse", 99.99)]
)
def test_methods_cut_far_weights_off_where_the_others_gain_by_it(method, percentile, granularity):
    weights = normal(500, 4, seed=9)
    weights[3, :] = 30
    whole = quantize_weights(weights, (-1,), WeightSettings(4, granularity))
    how = WeightSettings(4, granularity, method, percentile)
    found = quantize_weights(weights, (-1,), how)

    def error(of):
        near = np.delete(_values(of, (1, 4)) - weights, 3, axis=0)
        return np.square(near).mean()

    # The far weights' own error counts for mse as well, so that it cuts less off.
    assert error(found) < error(whole) * (0.7 if method == "mse" else 0.5)
    # What is cut off takes the end of the range.
    assert _values(found, (1, 4)).max() == _values(found, (1, 4))[3].max() < 29


@pytest.mark.parametrize("method", ["percentile", "entropy"])
@pytest.mark.parametrize("granularity", ["tensor", "channel"])
@pytest.mark.parametrize(
    "values", [[3.0], [-3.0] * 300, [1e-42] * 300, [0.0] * 300, [-1.0, -2.0], []]
)
def test_methods_take_few_weights_equal_ones_and_denormals(values, granularity, method):
    weights = np.array(values, np.float32)[:, None]
    found = quantize_weights(weights, (-1,), WeightSettings(8, granularity, method))
    step = found.steps.size if found.scales is None else found.scales.max()
    np.testing.assert_allclose(_values(found, (1, 1)), weights, atol=step, rtol=0)


@settings(deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 256),
    st.floats(0.125, 10, width=32),
    st.integers(0, 255),
)
def test_weights_of_a_network_that_was_trained_for_eight_bits_stay_as_they_are(
    seed, count, size, zero
):
    """Whatever part of the steps they use, as long as two of them are neighbors."""
    levels = np.random.default_rng(seed).integers(0, count, (1, 1, 16, 8))
    levels[0, 0, 0, :2] = [0, 1]
    weights = ((levels - min(zero, count - 1)) * np.float32(size)).astype(np.float32)
    found = quantize_weights(weights, (-1,), WeightSettings())
    assert found.scales is None
    np.testing.assert_allclose(_values(found, ()), weights, rtol=1e-5, atol=1e-5 * size)


@pytest.mark.parametrize(
    "weights",
    [
        normal(64, 8),
        np.array([[0.1, 0.2, 0.35]], np.float32),
        np.array([[0.0, 1.0, 300.0]], np.float32),
        np.zeros((2, 2), np.float32),
        np.array([[0.5, 1.5]], np.float32),
    ],
)
def test_weights_that_lie_on_no_steps_with_zero_have_none(weights):
    assert steps_of_lattice(weights) is None
