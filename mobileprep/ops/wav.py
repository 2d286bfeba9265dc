"""WAV files of 16-bit samples as arrays."""

from __future__ import annotations

import io
import wave

import numpy as np

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.ir.tensor import Array

_FULL_SCALE = np.float32(1 / 32768)
_FILE = "WAV file"


def decode_wav(data: bytes) -> tuple[Array, int]:
    """The samples of a WAV file and how many there are a second.

    Returns:
        float32 [samples, channels] from -1 up to, but not including, 1; and the sample rate in Hz.

    Raises:
        CorruptFileError: the file is damaged.
        UnsupportedError: the samples are not 16-bit integers.
    """
    try:
        with wave.open(io.BytesIO(data)) as reader:
            channels, width, rate = reader.getparams()[:3]
            frames = reader.readframes(reader.getnframes())
    except (wave.Error, EOFError) as error:
        message = f"is damaged: {str(error) or 'it ends too early'}"
        raise CorruptFileError(message, "record or export it again", _FILE) from error
    if width != 2:
        message = f"has samples of {8 * width} bits"
        raise UnsupportedError(message, "convert it to 16 bits", _FILE)
    whole = len(frames) // (2 * channels) * channels
    samples = np.frombuffer(frames, "<i2", whole).reshape(-1, channels)
    return np.multiply(samples, _FULL_SCALE, dtype=np.float32), rate
