"""A picture file as the input of a network: decoded, resized, normalized."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.ir.tensor import Array
from mobileprep.numerics.bmp import decode_bmp
from mobileprep.numerics.image_files import decode_gif, decode_jpeg, decode_png, image_kind
from mobileprep.numerics.resizing import Sampling, resize_bilinear


@dataclass(frozen=True)
class Normalization:
    """What a network takes a picture as.

    Args:
        height, width: in pixels.
        mean: what is taken from each value of 0 to 255.
        std: what each value is divided by after that.
    """

    height: int
    width: int
    mean: float = 0.0
    std: float = 255.0

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 1 or max(self.height, self.width) > 1 << 14:
            message = f"pictures of {self.width} x {self.height} pixels cannot be made"
            raise UsageError(message, "give a width and a height from 1 to 16384")
        if self.std == 0:
            raise UsageError("values cannot be divided by 0", "give a standard deviation")  # noqa: EM101


def picture(data: bytes, wanted: Normalization) -> Array:
    """The first frame of a picture file as float32 [1, height, width, 3].

    Decoded as RGB, resized with ``ResizeBilinear`` and normalized, all as the original
    ``label_image`` does.

    Raises:
        CorruptFileError: the file is damaged, or no JPEG, PNG, GIF or BMP.
        UnsupportedError: Pillow is not installed.
    """
    pixels = _decoded(data)[np.newaxis]
    resized = resize_bilinear(pixels, (wanted.height, wanted.width), Sampling())
    out: Array = (resized - np.float32(wanted.mean)) / np.float32(wanted.std)
    return out


def _decoded(data: bytes) -> Array:
    kind = image_kind(data)
    if kind == "JPEG":
        return decode_jpeg(data, 3)
    if kind == "PNG":
        return decode_png(data, 3)
    if kind == "GIF":
        return np.squeeze(decode_gif(data, first_only=True), axis=0)
    if kind == "BMP":
        return decode_bmp(data, 3)
    raise CorruptFileError("is no JPEG, PNG, GIF or BMP", "convert the picture")  # noqa: EM101
