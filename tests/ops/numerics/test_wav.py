"""WAV decoding."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.ops.numerics.texts import decode_wav
from tests.ops.sounds import wav

SAMPLES = np.array([[0, -32768], [32767, 16384]])


def test_samples_are_scaled() -> None:
    result, rate = decode_wav(wav(SAMPLES, rate=8000))
    np.testing.assert_array_equal(result, [[0, -1], [32767 / 32768, 0.5]])
    assert (result.dtype, rate) == (np.float32, 8000)


def test_empty_file() -> None:
    result, _ = decode_wav(wav(SAMPLES[:0]))
    assert result.shape == (0, 2)


@pytest.mark.parametrize("end", [0, 3, 20, 50, -1])
def test_truncated_files_are_refused(end: int) -> None:
    with pytest.raises(CorruptFileError, match=r"^WAV file: is damaged: \S"):
        decode_wav(wav(SAMPLES)[:end])


def test_other_widths_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="samples of 8 bits"):
        decode_wav(wav(SAMPLES[:1] % 200, width=1))
