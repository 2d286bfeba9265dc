"""Quantization steps per channel."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.ops.numerics.ranges import SHARES, channel_steps

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
