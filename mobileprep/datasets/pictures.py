"""Folders of pictures: decoded, cropped, resized and normalized as the network takes them."""

from __future__ import annotations

from typing import Final

import numpy as np

from mobileprep.datasets.decoder import Decoder
from mobileprep.errors import AccuracyError
from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array
from mobileprep.numerics.image_files import central_crop, decoded, exif_orientation
from mobileprep.numerics.resizing import Sampling, resize_bilinear

PICTURES: Final = frozenset({".jpg", ".jpeg", ".png", ".gif", ".bmp"})


@dataclass(frozen=True)
class PictureReading(Decoder):
    """How pictures become samples of an input."""

    def __post_init__(self) -> None:
        channels = 1 if self.reading.channels == "grayscale" else 3
        for key, given in (("mean", self.reading.mean), ("std", self.reading.std)):
            if given is not None and len(given) not in (1, channels):
                message = f"{self.data}: {key!r} has {len(given)} numbers for {channels} channels"
                raise AccuracyError(message, "give one number, or one for each channel")

    def is_rotated(self, data: bytes) -> bool:
        """See ``Decoder.is_rotated``."""
        return exif_orientation(data) != 1

    def _decoded(self, data: bytes) -> Array:
        return self._normalized(self._resized(data))

    def _resized(self, data: bytes) -> Array:
        """Values of 0 to 255, float32, in the channels of the network."""
        reading = self.reading
        pixels = decoded(data, 1 if reading.channels == "grayscale" else 3)
        if reading.central_crop is not None:
            pixels = central_crop(pixels, reading.central_crop)
        sampling = Sampling(half_pixel=reading.half_pixel_centers)
        size = self._size(pixels.shape[0], pixels.shape[1])
        resized: Array = resize_bilinear(pixels[np.newaxis], size, sampling)[0]
        return resized[..., ::-1] if reading.channels == "bgr" else resized

    def _size(self, height: int, width: int) -> tuple[int, int]:
        """What the recipe asks for, else what the input's shape says, else the picture's own."""
        if self.reading.resize is not None:
            return self.reading.resize[0], self.reading.resize[1]
        shape = self.fed.shape
        if shape is None or len(shape) < 3:
            return height, width
        return (
            shape[-3] if shape[-3] > 0 else height,
            shape[-2] if shape[-2] > 0 else width,
        )

    def _normalized(self, pixels: Array) -> Array:
        kind = self.fed.dtype.numpy
        whole = kind is not None and kind.kind in "iu"
        mean = np.array(self.reading.mean or (0.0,), np.float32)
        std = np.array(self.reading.std or (1.0 if whole else 255.0,), np.float32)
        values: Array = (pixels - mean) / std
        if not whole or kind is None:
            return values
        limits = np.iinfo(kind)
        return np.clip(np.rint(values), limits.min, limits.max).astype(kind)
