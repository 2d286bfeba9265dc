"""Random signals."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.runtime.sampling import draw as signals


def generator(seed: int = 5) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_signals_are_reproducible() -> None:
    for make in (lambda g: signals.random_image(g, 8, 9, 3), lambda g: signals.sound(g, 99)):
        np.testing.assert_array_equal(make(generator()), make(generator()))
        assert not np.array_equal(make(generator()), make(generator(6)))


@pytest.mark.parametrize("seed", range(3))
def test_image_values_are_8_bit_steps(seed: int) -> None:
    result = signals.random_image(generator(seed), 24, 32, 3)
    assert result.shape == (24, 32, 3)
    np.testing.assert_allclose(result * 255, np.round(result * 255), atol=1e-9)
    assert 0 <= result.min() <= 0.16
    assert 0.84 <= result.max() <= 1


@pytest.mark.parametrize("seed", range(3))
def test_neighboring_pixels_are_similar(seed: int) -> None:
    result = signals.random_image(generator(seed), 64, 64, 1)[..., 0]
    for axis in (0, 1):
        assert np.abs(np.diff(result, axis=axis)).mean() < result.std() / 2


@pytest.mark.parametrize("seed", range(3))
def test_audio_values_are_16_bit_steps(seed: int) -> None:
    result = signals.sound(generator(seed), 4000)
    assert result.shape == (4000,)
    np.testing.assert_allclose(result * 32767, np.round(result * 32767), atol=1e-6)
    assert 0.29 < np.abs(result).max() < 0.91
    assert abs(result.mean()) < 0.05


@pytest.mark.parametrize("seed", range(3))
def test_audio_has_tones(seed: int) -> None:
    power = np.abs(np.fft.rfft(signals.sound(generator(seed), 16000))) ** 2
    # Four gliding tones with three overtones use a small part of the spectrum,
    # up to three times 1.3 times 1,600 Hz.
    loudest = np.sort(power)[::-1]
    assert loudest[:1200].sum() > 0.9 * power.sum()
    assert power[:6300].sum() > 0.98 * power.sum()


def test_empty_signals() -> None:
    assert signals.sound(generator(), 0).shape == (0,)
    assert signals.features(generator(), 0).shape == (0,)


def test_features_fill_the_range() -> None:
    result = signals.features(generator(), 1000)
    assert 0 <= result.min() < 0.01
    assert 0.99 < result.max() < 1
