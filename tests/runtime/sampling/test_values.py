"""One sample of one input."""

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


def shares(expected: np.ndarray, found: np.ndarray) -> None:
    np.testing.assert_array_equal(found, expected.astype(np.float32).reshape(found.shape))


@pytest.mark.parametrize(("side", "channels"), [(28, 1), (16, 1), (16, 3)])
def test_a_row_as_long_as_a_picture_is_one(side: int, channels: int) -> None:
    found = sample((1, side * side * channels))
    shares(signals.picture(seeded(), side, side, channels), found)


@pytest.mark.parametrize("count", [225, 257, 301])
def test_other_rows_are_features(count: int) -> None:
    shares(signals.features(seeded(), count), sample((1, count)))


def test_a_picture_has_its_channels_where_the_graph_wants_them() -> None:
    picture = signals.picture(seeded(), 6, 8, 3)
    shares(picture, sample((1, 6, 8, 3), is_picture=True))
    first = sample((1, 3, 6, 8), is_picture=True, channels_first=True)
    shares(np.moveaxis(picture, -1, 0), first)


def test_a_picture_has_two_rows_at_least() -> None:
    shares(signals.picture(seeded(), 2, 8, 3), sample((1, 2, 8, 3), is_picture=True))
    # One row of pixels is a table of positions and channels.
    shares(signals.picture(seeded(), 8, 3, 1), sample((1, 1, 8, 3), is_picture=True))


def test_every_sample_of_a_batch_is_another() -> None:
    found = sample((3, 8, 8, 3), is_picture=True)
    assert not np.array_equal(found[0], found[1])
    assert sample((0, 8, 8, 3)).shape == (0, 8, 8, 3)


def test_values_fill_the_range_and_stay_within() -> None:
    found = sample((4, 500), -3, 5)
    assert found.dtype == np.float32
    assert -3 <= found.min() < -1
    assert 3 < found.max() <= 5
    whole = sample((4, 500), 2, 5, dtype=DType.INT32, rows=9)
    assert np.unique(whole).tolist() == [2, 3, 4, 5]


def test_sound_goes_up_and_down_around_the_middle() -> None:
    tones = signals.sound(seeded(), 5000)
    np.testing.assert_allclose(sample((5000,), -1, 1, is_sound=True), tones, atol=1e-6)


def test_lone_inputs_do_what_their_names_tell() -> None:
    assert sample((), name="keep_prob").tolist() == 1
    assert sample((2,), name="lengths", dtype=DType.INT32).tolist() == [33, 33]
    # A float is no length, and a matrix steers nothing.
    assert sample((2,), name="lengths").max() <= 1
    assert sample((2, 2), 0, 4, name="lengths", dtype=DType.INT32).max() <= 4


def test_a_lone_truth_is_off() -> None:
    switch = sample((), dtype=DType.BOOL)
    assert (switch.shape, switch.dtype, bool(switch)) == ((), np.bool_, False)
    many = sample((1000,), dtype=DType.BOOL)
    assert 0.4 < many.mean() < 0.6


def test_samples_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MOST_BYTES", 800)
    assert sample((100,)).shape == (100,)
    with pytest.raises(UsageError, match=r"'x' of shape \[101\] is too large"):
        sample((101,))


def test_sound_files_are_bounded() -> None:
    file = node("d", "DecodeWav", "x", T=None, desired_samples=1 << 40)
    with pytest.raises(UsageError, match="is too large"):
        sample((1,), dtype=DType.STRING, file=file)
    with pytest.raises(UsageError, match="is too large"):
        sample((1 << 20,), dtype=DType.STRING, file=node("d", "DecodeWav", "x", T=None))


def test_of_a_large_batch_the_first_samples_are_drawn_and_come_again() -> None:
    found = sample((1000, 3, 2, 3))
    assert len(np.unique(found.reshape(1000, -1), axis=0)) == 256
    shares(found[:256], sample((256, 3, 2, 3)))
    shares(found[:256], found[256:512])


@pytest.mark.parametrize(("wanted", "length"), [(4000, 4000), (-1, 16000), (None, 16000)])
def test_a_sound_file_has_the_length_that_is_wanted(wanted: int | None, length: int) -> None:
    attrs = {} if wanted is None else {"desired_samples": wanted}
    file = node("d", "DecodeWav", "x", T=None, **attrs)
    found = sample((2,), dtype=DType.STRING, file=file)
    assert found.shape == (2,)
    for data in found:
        with wave.open(io.BytesIO(data)) as sound:
            read = (sound.getnchannels(), sound.getsampwidth(), sound.getframerate())
            assert read == (1, 2, 16000)
            assert sound.getnframes() == length


@pytest.mark.parametrize(
    ("dtype", "op", "what"),
    [
        (DType.STRING, None, "it is text"),
        (DType.STRING, "DecodeJpeg", "it is the content of an image file"),
        (DType.STRING, "ParseExample", "it is serialized examples"),
        (DType.RESOURCE, None, "it is of type resource"),
    ],
)
def test_what_cannot_be_drawn_is_told(dtype: DType, op: str | None, what: str) -> None:
    file = None if op is None else node("d", op, "x", T=None)
    with pytest.raises(UsageError) as caught:
        sample((), dtype=dtype, file=file)
    assert caught.value.message == f"no sample can be drawn for the input 'x': {what}"
    assert ("or use the output of" in caught.value.hint) is (op is not None)
