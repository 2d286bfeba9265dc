"""Folders of ``.wav`` files, decoded as TensorFlow's ``DecodeWav`` does."""

from __future__ import annotations

from typing import Final

from mobileprep.datasets.decoder import Decoder
from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array
from mobileprep.numerics.texts import decode_wav, desired_sound

SOUNDS: Final = frozenset({".wav"})


@dataclass(frozen=True)
class SoundReading(Decoder):
    """How sounds become samples of an input."""

    def _decoded(self, data: bytes) -> Array:
        """float32 from -1 to 1, [samples, channels] or [samples]."""
        samples, _ = decode_wav(data)
        channels = self.reading.desired_channels or -1
        sound = desired_sound(samples, self._count(), channels)
        shape = self.fed.shape
        if sound.shape[1] == 1 and shape is not None and len(shape) == 2 and shape[1] != 1:
            sound = sound[:, 0]
        return sound

    def _count(self) -> int:
        """What the recipe asks for, else what the input's shape says, else -1 for the file's."""
        if self.reading.desired_samples is not None:
            return self.reading.desired_samples
        shape = self.fed.shape or ()
        # [samples], [batch, samples], [samples, 1] or [batch, samples, channels].
        at = 0 if len(shape) < 2 or (len(shape) == 2 and shape[1] == 1) else 1
        return shape[at] if shape and shape[at] > 1 else -1
