"""Random values of one input."""

from __future__ import annotations

import io
import wave
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.runtime.sampling import draw as signals
from mobileprep.runtime.sampling import draw as values
from mobileprep.runtime.sampling.findings import FirstOps
from mobileprep.runtime.sampling.first_ops import ValueRange
from mobileprep.runtime.sampling.inputs import FedTensor
from tests.transforms.graphs import node


def seeded() -> np.random.Generator:
    return np.random.default_rng(5)


def sample(
    shape: Any,
    low: float = 0,
    high: float = 1,
    *,
    name: str = "x",
    dtype: DType = DType.FLOAT,
    **ops: Any,
) -> np.ndarray:
    fed = FedTensor(name, dtype, shape)
    return signals.sample(fed, shape, FirstOps(**ops), ValueRange(low, high), seeded(), 33)


def assert_equal(expected: np.ndarray, actual: np.ndarray) -> None:
    np.testing.assert_array_equal(actual, expected.astype(np.float32).reshape(actual.shape))


@pytest.mark.parametrize(("side", "channels"), [(28, 1), (16, 1), (16, 3)])
def test_row_of_image_size_is_an_image(side: int, channels: int) -> None:
    result = sample((1, side * side * channels))
    assert_equal(signals.random_image(seeded(), side, side, channels), result)


@pytest.mark.parametrize("count", [225, 257, 301])
def test_other_rows_are_features(count: int) -> None:
    assert_equal(signals.features(seeded(), count), sample((1, count)))


def test_channels_first_image() -> None:
    random_image = signals.random_image(seeded(), 6, 8, 3)
    assert_equal(random_image, sample((1, 6, 8, 3), is_image=True))
    first = sample((1, 3, 6, 8), is_image=True, channels_first=True)
    assert_equal(np.moveaxis(random_image, -1, 0), first)


def test_image_has_at_least_two_rows() -> None:
    assert_equal(signals.random_image(seeded(), 2, 8, 3), sample((1, 2, 8, 3), is_image=True))
    # One row of pixels is an image of positions and channels.
    assert_equal(signals.random_image(seeded(), 8, 3, 1), sample((1, 1, 8, 3), is_image=True))


def test_samples_of_a_batch_differ() -> None:
    result = sample((3, 8, 8, 3), is_image=True)
    assert not np.array_equal(result[0], result[1])
    assert sample((0, 8, 8, 3)).shape == (0, 8, 8, 3)


def test_values_fill_the_range() -> None:
    result = sample((4, 500), -3, 5)
    assert result.dtype == np.float32
    assert -3 <= result.min() < -1
    assert 3 < result.max() <= 5
    whole = sample((4, 500), 2, 5, dtype=DType.INT32, rows=9)
    assert np.unique(whole).tolist() == [2, 3, 4, 5]


def test_audio_is_centered() -> None:
    tones = signals.sound(seeded(), 5000)
    np.testing.assert_allclose(sample((5000,), -1, 1, is_audio=True), tones, atol=1e-6)


def test_settings_and_lengths_by_name() -> None:
    assert sample((), name="keep_prob").tolist() == 1
    assert sample((2,), name="lengths", dtype=DType.INT32).tolist() == [33, 33]
    # A float is not a length, and a matrix is not a setting.
    assert sample((2,), name="lengths").max() <= 1
    assert sample((2, 2), 0, 4, name="lengths", dtype=DType.INT32).max() <= 4


def test_scalar_bool_is_false() -> None:
    switch = sample((), dtype=DType.BOOL)
    assert (switch.shape, switch.dtype, bool(switch)) == ((), np.bool_, False)
    many = sample((1000,), dtype=DType.BOOL)
    assert 0.4 < many.mean() < 0.6


def test_sample_size_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MOST_BYTES", 800)
    assert sample((100,)).shape == (100,)
    with pytest.raises(UsageError, match=r"'x' of shape \[101\] is too large"):
        sample((101,))


def test_audio_file_size_is_limited() -> None:
    file = node("d", "DecodeWav", "x", T=None, desired_samples=1 << 40)
    with pytest.raises(UsageError, match="is too large"):
        sample((1,), dtype=DType.STRING, file=file)
    with pytest.raises(UsageError, match="is too large"):
        sample((1 << 20,), dtype=DType.STRING, file=node("d", "DecodeWav", "x", T=None))


def test_samples_of_a_large_batch_repeat() -> None:
    result = sample((1000, 3, 2, 3))
    assert len(np.unique(result.reshape(1000, -1), axis=0)) == 256
    assert_equal(result[:256], sample((256, 3, 2, 3)))
    assert_equal(result[:256], result[256:512])


@pytest.mark.parametrize(("desired", "length"), [(4000, 4000), (-1, 16000), (None, 16000)])
def test_audio_file_length(desired: int | None, length: int) -> None:
    attrs = {} if desired is None else {"desired_samples": desired}
    file = node("d", "DecodeWav", "x", T=None, **attrs)
    result = sample((2,), dtype=DType.STRING, file=file)
    assert result.shape == (2,)
    for data in result:
        with wave.open(io.BytesIO(data)) as sound:
            read = (sound.getnchannels(), sound.getsampwidth(), sound.getframerate())
            assert read == (1, 2, 16000)
            assert sound.getnframes() == length


@pytest.mark.parametrize(
    ("dtype", "op", "reason"),
    [
        (DType.STRING, None, "it is text"),
        (DType.STRING, "DecodeJpeg", "it is the content of an image file"),
        (DType.STRING, "ParseExample", "it is serialized examples"),
        (DType.RESOURCE, None, "it is of type resource"),
    ],
)
def test_unsupported_input_is_reported(dtype: DType, op: str | None, reason: str) -> None:
    file = None if op is None else node("d", op, "x", T=None)
    with pytest.raises(UsageError) as error:
        sample((), dtype=dtype, file=file)
    assert error.value.message == f"no sample can be drawn for the input 'x': {reason}"
    assert ("or use the output of" in error.value.hint) is (op is not None)


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
