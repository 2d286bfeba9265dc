"""Sound."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import CostCase, OpCase, cost, shapes
from tests.ops.graphs import f32, i32, run, run_all
from tests.ops.pictures import text
from tests.ops.sounds import wav

SPECTROGRAM = "AudioSpectrogram"

SHAPES = [
    # 1 + (100 - 10) / 6 windows, of a transform of 16 half and one
    shapes(SPECTROGRAM, [(100, 2)], [(2, 16, 9)], window_size=10, stride=6),
    shapes(SPECTROGRAM, [(10, 2)], [(2, 1, 9)], window_size=10, stride=6),
    shapes(SPECTROGRAM, [(9, 2)], [(2, 0, 9)], window_size=10, stride=6),
    shapes(SPECTROGRAM, [(100, 2)], [(2, 11, 9)], window_size=16, stride=8),
    shapes(SPECTROGRAM, [(100, 2)], [(2, 11, 17)], window_size=17, stride=8),
    shapes(SPECTROGRAM, [(0, 2)], [(2, 0, 9)], window_size=10, stride=6),
    shapes(SPECTROGRAM, [(12, 2)], [(2, 3, 9)], window_size=10, stride=1),
    shapes(SPECTROGRAM, [(-1, 2)], [(2, -1, 9)], window_size=10, stride=6),
    shapes(SPECTROGRAM, [(100,)], None, window_size=10, stride=6),
]

COSTS = [
    # a window of 10, half of 5 x 16 x log2 16, and for each of 9 two squares, a sum and a root
    cost(SPECTROGRAM, [(100, 2)], [(2, 16, 9)], 32 * (10 + 160 + 36), window_size=10),
    cost(
        SPECTROGRAM,
        [(100, 2)],
        [(2, 16, 9)],
        32 * (10 + 160 + 27),
        window_size=10,
        magnitude_squared=True,
    ),
]

SOUND = text(wav(np.array([[16384, -16384], [8192, 0], [0, 8192]]), rate=8000))


def test_sound_is_decoded() -> None:
    samples, rate = run_all("DecodeWav", SOUND)
    np.testing.assert_array_equal(samples, [[0.5, -0.5], [0.25, 0], [0, 0.25]])
    assert (rate.tolist(), rate.dtype) == (8000, np.int32)


def test_samples_and_channels_may_be_demanded() -> None:
    cut, _ = run_all("DecodeWav", SOUND, desired_samples=1, desired_channels=1)
    np.testing.assert_array_equal(cut, [[0.5]])
    filled, _ = run_all("DecodeWav", SOUND, desired_samples=4, desired_channels=3)
    expected = [[0.5, -0.5, -0.5], [0.25, 0, 0], [0, 0.25, 0.25], [0, 0, 0]]
    np.testing.assert_array_equal(filled, expected)


def test_a_tone_is_strong_at_its_frequency() -> None:
    tone = np.cos(2 * np.pi * 8 * np.arange(64) / 32)[:, None]
    found = run("AudioSpectrogram", f32(tone), window_size=32, stride=16, magnitude_squared=False)
    assert found.shape == (1, 3, 17)
    # Half of the window's length from the tone, half of that from the window.
    np.testing.assert_allclose(found[0, 0, 7:10], [4, 8, 4], rtol=1e-5)
    np.testing.assert_allclose(found[0, :, :6], 0, atol=1e-5)


def test_the_transform_is_filled_up_to_a_power_of_two() -> None:
    sound = f32(np.ones((10, 2)))
    found = run("AudioSpectrogram", sound, window_size=5, stride=2, magnitude_squared=True)
    assert found.shape == (2, 3, 5)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(5) / 5)
    expected = np.abs(np.fft.rfft(hann, 8)) ** 2
    np.testing.assert_allclose(found[1, 2], expected, rtol=1e-6)


def test_sound_shorter_than_a_window_has_none() -> None:
    found = run("AudioSpectrogram", f32(np.ones((3, 1))), window_size=4, stride=1)
    assert found.shape == (1, 0, 3)


@pytest.mark.parametrize(("window", "stride"), [(1, 1), (4, 0), (1 << 30, 1)])
def test_impossible_windows_are_refused(window: int, stride: int) -> None:
    with pytest.raises(InvalidGraphError, match="node 'y'"):
        run("AudioSpectrogram", f32(np.ones((8, 1))), window_size=window, stride=stride)


def test_coefficients_of_silence_are_those_of_the_least_energy() -> None:
    found = run("Mfcc", np.zeros((1, 2, 257), np.float32), i32(16000))
    assert found.shape == (1, 2, 13)
    # The first cosine is 1: all 40 logarithms, times the root of 2 / 40.
    np.testing.assert_allclose(found[0, :, 0], np.log(1e-12) * np.sqrt(80), rtol=1e-6)
    np.testing.assert_allclose(found[0, :, 1:], 0, atol=1e-4)


def test_a_flat_spectrum_fills_each_band_by_its_width() -> None:
    found = run("Mfcc", np.ones((1, 1, 257), np.float32), i32(16000), dct_coefficient_count=40)
    grid = (np.arange(40)[:, None] + 0.5) * np.arange(40)[None] * (np.pi / 40)
    cosines = np.cos(grid) * np.sqrt(2 / 40)
    cosines[:, 0] /= 2
    energy = np.exp(cosines @ found[0, 0])
    step = 8000 / 256
    edges = 700 * np.expm1(np.linspace(*(1127 * np.log1p(np.array([20, 4000]) / 700)), 42) / 1127)
    widths = (edges[2:] - edges[:-2]) / 2 / step
    np.testing.assert_allclose(energy[-10:], widths[-10:], rtol=0.05)


@pytest.mark.parametrize(
    ("rate", "attrs"),
    [
        (0, {}),
        (4000, {}),
        (16000, {"lower_frequency_limit": 5000.0}),
        (16000, {"dct_coefficient_count": 41}),
        (16000, {"filterbank_channel_count": 0}),
    ],
)
def test_impossible_bands_are_refused(rate: int, attrs: dict) -> None:
    with pytest.raises(InvalidGraphError, match="node 'y'"):
        run("Mfcc", np.ones((1, 1, 257), np.float32), i32(rate), **attrs)


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: OpCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()
