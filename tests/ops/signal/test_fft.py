"""Fourier transforms."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32, i32, run, run_all
from tests.ops.pictures import text
from tests.ops.sounds import wav

PLAIN = {"FFT": 1, "IFFT": 1, "FFT2D": 2, "IFFT2D": 2, "FFT3D": 3, "IFFT3D": 3}

SHAPES = [
    *(shapes(op, [(5, -1, 8, 4)], [(5, -1, 8, 4)]) for op in PLAIN),
    *(shapes(op, [(4,) * rank], [(4,) * rank]) for op, rank in PLAIN.items()),
    *(shapes(op, [(4,) * (rank - 1)], None) for op, rank in PLAIN.items()),
    shapes("RFFT", [(5, 9), [8]], [(5, 5)]),
    shapes("RFFT", [(5, 9), [7]], [(5, 4)]),
    shapes("RFFT", [(5, 9), [1]], [(5, 1)]),
    shapes("RFFT", [(5, 9), [0]], [(5, 0)]),
    shapes("RFFT", [(5, 9), (1,)], [(5, -1)]),
    shapes("RFFT", [None, [8]], [None]),
    shapes("RFFT", [(), [8]], None),
    shapes("RFFT", [(5, 9), [8, 8]], None),
    shapes("RFFT2D", [(5, 9, 9), [6, 8]], [(5, 6, 5)]),
    shapes("RFFT2D", [(9, 9), (2,)], [(-1, -1)]),
    shapes("RFFT2D", [(9,), [6, 8]], None),
    shapes("RFFT3D", [(5, 9, 9, 9), [4, 6, 8]], [(5, 4, 6, 5)]),
    shapes("IRFFT", [(5, 9), [8]], [(5, 8)]),
    shapes("IRFFT", [(5, 9), (1,)], [(5, -1)]),
    shapes("IRFFT", [None, [8]], [None]),
    shapes("IRFFT", [(), [8]], None),
    shapes("IRFFT2D", [(5, 9, 9), [6, 8]], [(5, 6, 8)]),
    shapes("IRFFT3D", [(9, 9, 9), [4, 6, 8]], [(4, 6, 8)]),
]

# n log2 n is 8 x 3 for each of 2 rows, 32 x 5 for 4 x 8, 64 x 6 for 2 x 4 x 8.
ROWS, PLANE, CUBE = [(2, 8)], [(4, 8)], [(2, 4, 8)]

COSTS = [
    *(cost(op, ROWS, ROWS, 5 * 48) for op in ("FFT", "IFFT")),
    *(cost(op, PLANE, PLANE, 5 * 160) for op in ("FFT2D", "IFFT2D")),
    *(cost(op, CUBE, CUBE, 5 * 384) for op in ("FFT3D", "IFFT3D")),
    cost("FFT2D", [(3, 4, 8)], [(3, 4, 8)], 5 * 480),
    cost("RFFT", [*ROWS, (1,)], [(2, 5)], 120),
    cost("RFFT2D", [*PLANE, (2,)], [(4, 5)], 400),
    cost("RFFT3D", [*CUBE, (3,)], [(2, 4, 5)], 960),
    cost("IRFFT", [(2, 5), (1,)], ROWS, 120),
    cost("IRFFT2D", [(4, 5), (2,)], PLANE, 400),
    cost("IRFFT3D", [(2, 4, 5), (3,)], CUBE, 960),
    cost("FFT", [(5, 1)], [(5, 1)], 0),
    cost("FFT", [(5, 2)], [(5, 2)], 5 * 10),
]


def test_fft_matches_its_definition() -> None:
    x = np.array([1, 2, 0, -1j], np.complex64)
    # sums of x[k] times powers of -i, for each frequency
    expected = [3 - 1j, 1 - 2j + 1, -1 + 1j, 1 + 2j - 1]
    np.testing.assert_allclose(run("FFT", x), expected, atol=1e-6)
    np.testing.assert_allclose(run("IFFT", np.complex64(expected)), x, atol=1e-6)


@pytest.mark.parametrize(("op", "axes"), [("FFT2D", (1, 2)), ("FFT3D", (0, 1, 2))])
def test_fft_over_several_axes(op: str, axes: tuple[int, ...]) -> None:
    x = np.zeros((2, 2, 4), np.complex64)
    x[0, 1, 1] = 1
    rows, columns = np.exp(-1j * np.pi * np.arange(2)), np.exp(-0.5j * np.pi * np.arange(4))
    plane = np.outer(rows, columns)
    whole = [plane, plane] if len(axes) == 3 else [plane, 0 * plane]
    np.testing.assert_allclose(run(op, x), whole, atol=1e-6)
    assert run(op, x).dtype == np.complex64


def test_rfft_and_irfft() -> None:
    x = np.float32([1, 2, 0, -1])
    result = run("RFFT", x, np.int32([4]))
    assert result.dtype == np.complex64
    np.testing.assert_allclose(result, [2, 1 - 3j, 0], atol=1e-6)
    np.testing.assert_allclose(run("IRFFT", result, np.int32([4])), x, atol=1e-6)
    np.testing.assert_allclose(run("RFFT", x, np.int32([2])), [3, -1], atol=1e-6)
    with pytest.raises(InvalidGraphError, match=r"a transform of \[5\] numbers"):
        run("RFFT", x, np.int32([5]))


@pytest.mark.parametrize("op", ["FFT", "IFFT2D"])
def test_fft_of_empty_tensor(op: str) -> None:
    assert run(op, np.zeros((2, 3, 0), np.complex64)).shape == (2, 3, 0)


SHAPES += [
    shapes("Mfcc", [(2, 98, 257), ()], [(2, 98, 13)]),
    shapes("Mfcc", [(-1, 98, 257), ()], [(-1, 98, 20)], dct_coefficient_count=20),
    shapes("Mfcc", [None, ()], [(-1, -1, 13)]),
    shapes("Mfcc", [(98, 257), ()], None),
]

COSTS += [
    # 5 for each of 9 frequencies, 40 logarithms, and 13 sums of 40 products
    cost("Mfcc", [(2, 3, 9), ()], [(2, 3, 13)], 6 * (45 + 40 + 1040)),
    cost(
        "Mfcc",
        [(2, 3, 9), ()],
        [(2, 3, 4)],
        6 * (45 + 10 + 80),
        filterbank_channel_count=10,
        dct_coefficient_count=4,
    ),
]


SHAPES += [
    shapes("DecodeWav", [()], [(-1, -1), ()]),
    shapes("DecodeWav", [()], [(16000, 2), ()], desired_samples=16000, desired_channels=2),
]

COSTS += [cost("DecodeWav", [()], [(16000, 2), ()], 0)]


SPECTROGRAM = "AudioSpectrogram"

SHAPES += [
    # 1 + (100 - 10) / 6 windows, and 16 / 2 + 1 frequencies
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

COSTS += [
    # a window of 10, half of 5 x 16 x log2 16, and for each of 9 two squares, a sum, and a root
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

AUDIO = text(wav(np.array([[16384, -16384], [8192, 0], [0, 8192]]), rate=8000))


def test_decode_wav() -> None:
    samples, rate = run_all("DecodeWav", AUDIO)
    np.testing.assert_array_equal(samples, [[0.5, -0.5], [0.25, 0], [0, 0.25]])
    assert (rate.tolist(), rate.dtype) == (8000, np.int32)


def test_decode_wav_with_desired_samples_and_channels() -> None:
    cut, _ = run_all("DecodeWav", AUDIO, desired_samples=1, desired_channels=1)
    np.testing.assert_array_equal(cut, [[0.5]])
    filled, _ = run_all("DecodeWav", AUDIO, desired_samples=4, desired_channels=3)
    expected = [[0.5, -0.5, -0.5], [0.25, 0, 0], [0, 0.25, 0.25], [0, 0, 0]]
    np.testing.assert_array_equal(filled, expected)


def test_spectrogram_of_a_tone() -> None:
    tone = np.cos(2 * np.pi * 8 * np.arange(64) / 32)[:, None]
    result = run("AudioSpectrogram", f32(tone), window_size=32, stride=16, magnitude_squared=False)
    assert result.shape == (1, 3, 17)
    # Half of the window length from the tone, and half of that from the window.
    np.testing.assert_allclose(result[0, 0, 7:10], [4, 8, 4], rtol=1e-5)
    np.testing.assert_allclose(result[0, :, :6], 0, atol=1e-5)


def test_window_is_padded_to_a_power_of_two() -> None:
    samples = f32(np.ones((10, 2)))
    result = run("AudioSpectrogram", samples, window_size=5, stride=2, magnitude_squared=True)
    assert result.shape == (2, 3, 5)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(5) / 5)
    expected = np.abs(np.fft.rfft(hann, 8)) ** 2
    np.testing.assert_allclose(result[1, 2], expected, rtol=1e-6)


def test_spectrogram_of_short_audio_is_empty() -> None:
    result = run("AudioSpectrogram", f32(np.ones((3, 1))), window_size=4, stride=1)
    assert result.shape == (1, 0, 3)


@pytest.mark.parametrize(("window", "stride"), [(1, 1), (4, 0), (1 << 30, 1)])
def test_invalid_windows_are_refused(window: int, stride: int) -> None:
    with pytest.raises(InvalidGraphError, match="node 'y'"):
        run("AudioSpectrogram", f32(np.ones((8, 1))), window_size=window, stride=stride)


def test_mfcc_of_silence() -> None:
    result = run("Mfcc", np.zeros((1, 2, 257), np.float32), i32(16000))
    assert result.shape == (1, 2, 13)
    # The first cosine is 1: the sum of 40 logarithms, times the root of 2 / 40.
    np.testing.assert_allclose(result[0, :, 0], np.log(1e-12) * np.sqrt(80), rtol=1e-6)
    np.testing.assert_allclose(result[0, :, 1:], 0, atol=1e-4)


def test_mfcc_of_a_flat_spectrum() -> None:
    result = run("Mfcc", np.ones((1, 1, 257), np.float32), i32(16000), dct_coefficient_count=40)
    grid = (np.arange(40)[:, None] + 0.5) * np.arange(40)[None] * (np.pi / 40)
    cosines = np.cos(grid) * np.sqrt(2 / 40)
    cosines[:, 0] /= 2
    energy = np.exp(cosines @ result[0, 0])
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
def test_invalid_mfcc_bands_are_refused(rate: int, attrs: dict) -> None:
    with pytest.raises(InvalidGraphError, match="node 'y'"):
        run("Mfcc", np.ones((1, 1, 257), np.float32), i32(rate), **attrs)


test_shapes_and_costs = case_tests(SHAPES, COSTS)
