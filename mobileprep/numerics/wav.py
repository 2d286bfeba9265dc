"""WAV files of 16-bit samples as arrays."""

from __future__ import annotations

import io
import wave

import numpy as np

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import check_allocation

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
            channels, width, rate, count = reader.getparams()[:4]
            frames = reader.readframes(count)
    # Of chunks that end beyond the file the module's own reader raises a bare RuntimeError.
    except (wave.Error, EOFError, RuntimeError) as error:
        raise _damaged(str(error) or "it ends within its header") from error
    if width != 2:
        message = f"has samples of {8 * width} bits"
        raise UnsupportedError(message, "convert it to 16 bits", _FILE)
    if len(frames) != 2 * channels * count:
        message = f"{count} samples are declared, and {len(frames) // (2 * channels)} are there"
        raise _damaged(message)
    samples = np.frombuffer(frames, "<i2").reshape(-1, channels)
    return samples.astype(np.float32) * _FULL_SCALE, rate


def desired_sound(samples: Array, count: int = -1, channels: int = -1) -> Array:
    """A sound of the length and channels that ``DecodeWav`` is asked for.

    Args:
        samples: float32 [samples, channels].
        count: how many samples, cut off or filled up with silence; -1 for all.
        channels: how many channels, cut off or the last one repeated; -1 for all.
    """
    count = len(samples) if count < 0 else count
    channels = samples.shape[1] if channels < 0 else channels
    check_allocation((count, channels), samples.dtype)
    out = np.zeros((count, channels), np.float32)
    source = np.minimum(np.arange(channels), samples.shape[1] - 1)
    out[: len(samples)] = samples[:count, source]
    return out


def _damaged(reason: str) -> CorruptFileError:
    return CorruptFileError(f"is damaged: {reason}", "record or export it again", _FILE)
