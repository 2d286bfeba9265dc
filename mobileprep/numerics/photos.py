"""A picture file as the input of a network: decoded, cropped, resized, normalized."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import OverBudgetError
from mobileprep.numerics.bmp import decode_bmp
from mobileprep.numerics.image_files import decode_gif, decode_jpeg, decode_png, image_kind
from mobileprep.numerics.resizing import Sampling, resize_bilinear

_APP1: Final = 0xE1
_ORIENTATION: Final = 0x0112
_LUMA = np.array([0.2989, 0.5870, 0.1140], np.float32)


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
    pixels = decoded(data)[np.newaxis]
    resized = resize_bilinear(pixels, (wanted.height, wanted.width), Sampling())
    out: Array = (resized - np.float32(wanted.mean)) / np.float32(wanted.std)
    return out


def central_crop(pixels: Array, share: float) -> Array:
    """The middle of a picture [height, width, channels], as ``tf.image.central_crop`` cuts it out.

    Args:
        pixels: the picture.
        share: of each side, above 0 and up to 1.
    """
    top, left = (int((size - size * share) / 2) for size in pixels.shape[:2])
    return pixels[top : pixels.shape[0] - top, left : pixels.shape[1] - left]


def decoded(data: bytes, channels: int = 3) -> Array:
    """The first frame of a picture file as uint8 [height, width, channels].

    Args:
        data: the file.
        channels: 3 for RGB, 1 for luminance: that of JPEG and PNG files is made while decoding,
            as TensorFlow does, that of others as ``tf.image.rgb_to_grayscale`` makes it.

    Raises:
        CorruptFileError: the file is damaged, too large, or no JPEG, PNG, GIF or BMP.
        UnsupportedError: Pillow is not installed.
    """
    try:
        return _decoded(data, channels)
    except OverBudgetError as error:
        raise CorruptFileError(str(error), "use a smaller picture, or allow more") from error


def exif_orientation(data: bytes) -> int:
    """How a JPEG file is to be turned to be upright, 1 to 8 as EXIF has it; 1 for as it is.

    Decoders ignore it, those of TensorFlow too.
    """
    at = 2 if data.startswith(b"\xff\xd8") else len(data)
    while data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] not in (b"\xda", b"\xd9", b""):
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] == _APP1 and data[at + 4 : at + 10] == b"Exif\0\0":
            return _orientation(data[at + 10 : at + 2 + length])
        at += 2 + max(length, 2)
    return 1


def _orientation(tiff: bytes) -> int:
    """The orientation in the first directory of EXIF's TIFF header; 1 where it has none."""
    order: Literal["little", "big"] = "little" if tiff.startswith(b"II") else "big"
    first = int.from_bytes(tiff[4:8], order)
    for entry in range(int.from_bytes(tiff[first : first + 2], order)):
        at = first + 2 + 12 * entry
        if int.from_bytes(tiff[at : at + 2], order) == _ORIENTATION:
            value = int.from_bytes(tiff[at + 8 : at + 10], order)
            return value if 1 <= value <= 8 else 1
        if at + 12 > len(tiff):
            break
    return 1


def _decoded(data: bytes, channels: int) -> Array:
    kind = image_kind(data)
    if kind == "JPEG":
        return decode_jpeg(data, channels)
    if kind == "PNG":
        return decode_png(data, channels)
    if kind == "GIF":
        return _in_channels(decode_gif(data, first_only=True)[0], channels)
    if kind == "BMP":
        return _in_channels(decode_bmp(data, 3), channels)
    raise CorruptFileError("is no JPEG, PNG, GIF or BMP", "convert the picture")  # noqa: EM101


def _in_channels(pixels: Array, channels: int) -> Array:
    if channels == 3:
        return pixels
    # As convert_image_dtype there and back: values are cut off, not rounded.
    scaled = pixels.astype(np.float32) * np.float32(1 / 255)
    luma: Array = (scaled @ _LUMA)[..., np.newaxis] * np.float32(255.5)
    return luma.astype(np.uint8)
