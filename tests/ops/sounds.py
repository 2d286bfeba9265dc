"""Small WAV files."""

from __future__ import annotations

import io
import wave

import numpy as np


def wav(samples: np.ndarray, *, rate: int = 16000, width: int = 2) -> bytes:
    """A WAV file of integers [samples, channels]."""
    stream = io.BytesIO()
    with wave.open(stream, "wb") as writer:
        writer.setparams((samples.shape[1], width, rate, len(samples), "NONE", ""))
        writer.writeframes(samples.astype(f"<i{width}" if width > 1 else "u1").tobytes())
    return stream.getvalue()
