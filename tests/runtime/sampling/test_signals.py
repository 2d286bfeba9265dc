"""Seeded signals: their shapes, their steps, and that neighbours resemble each other."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.runtime.sampling import draw as signals


def generator(seed: int = 5) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_same_seed_gives_the_same_signal() -> None:
    for make in (lambda g: signals.picture(g, 8, 9, 3), lambda g: signals.sound(g, 99)):
        np.testing.assert_array_equal(make(generator()), make(generator()))
        assert not np.array_equal(make(generator()), make(generator(6)))


@pytest.mark.parametrize("seed", range(3))
def test_a_picture_has_the_steps_of_files_and_most_of_their_range(seed: int) -> None:
    found = signals.picture(generator(seed), 24, 32, 3)
    assert found.shape == (24, 32, 3)
    np.testing.assert_allclose(found * 255, np.round(found * 255), atol=1e-9)
    assert 0 <= found.min() <= 0.16
    assert 0.84 <= found.max() <= 1


@pytest.mark.parametrize("seed", range(3))
def test_neighbours_in_a_picture_resemble_each_other(seed: int) -> None:
    found = signals.picture(generator(seed), 64, 64, 1)[..., 0]
    for axis in (0, 1):
        assert np.abs(np.diff(found, axis=axis)).mean() < found.std() / 2


@pytest.mark.parametrize("seed", range(3))
def test_a_sound_has_the_steps_of_files_and_keeps_below_full_level(seed: int) -> None:
    found = signals.sound(generator(seed), 4000)
    assert found.shape == (4000,)
    np.testing.assert_allclose(found * 32767, np.round(found * 32767), atol=1e-6)
    assert 0.29 < np.abs(found).max() < 0.91
    assert abs(found.mean()) < 0.05


@pytest.mark.parametrize("seed", range(3))
def test_a_sound_is_made_of_tones(seed: int) -> None:
    power = np.abs(np.fft.rfft(signals.sound(generator(seed), 16000))) ** 2
    # Four tones of three overtones that glide a little stand in a small part of the spectrum,
    # up to three times 1.3 times 1,600 Hz.
    loudest = np.sort(power)[::-1]
    assert loudest[:1200].sum() > 0.9 * power.sum()
    assert power[:6300].sum() > 0.98 * power.sum()


def test_signals_without_length_are_empty() -> None:
    assert signals.sound(generator(), 0).shape == (0,)
    assert signals.features(generator(), 0).shape == (0,)


def test_features_fill_the_range() -> None:
    found = signals.features(generator(), 1000)
    assert 0 <= found.min() < 0.01
    assert 0.99 < found.max() < 1
