"""Encoded images (JPEG, PNG, GIF) as arrays, decoded by Pillow, sizes checked before decoding."""

from __future__ import annotations

import contextlib
import importlib
import io
import struct
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import check_bytes

# TensorFlow's own bound: pixels of one image.
_MOST_PIXELS = 1 << 29
_MOST_FRAMES_BYTES = 1 << 32
# Bytes a pixel: what Pillow decodes, converts and copies, or what luminance is computed in; and
# each frame, which is put beside the others then.
_AT_WORK = 16
_KEPT = 6

# What Pillow raises over damaged files.
_FAULTS = (OSError, EOFError, SyntaxError, ValueError, LookupError, struct.error)

_MAGIC = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
)

# Luminance as libpng computes it from red, green and blue.
_LUMA = np.array([9798, 19235, 3735], np.uint32)
_LUMA_SHIFT = 15


def image_kind(data: bytes) -> str:
    """JPEG, PNG, GIF or BMP, told by the first bytes, or an empty text."""
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), "")


def decode_jpeg(data: bytes, channels: int, ratio: int = 1) -> Array:
    """The pixels of a JPEG image.

    TensorFlow decodes with a faster, less exact transform unless its attribute ``dct_method`` is
    INTEGER_ACCURATE: values then differ by up to about six, by one on average.

    Args:
        data: the file.
        channels: 1 for luminance, 3 for RGB, 0 for what the image has.
        ratio: by how much to shrink while decoding: 1, 2, 4 or 8.

    Returns:
        uint8 [height, width, channels].

    Raises:
        CorruptFileError: the image is damaged, or too large.
        OverBudgetError: its pixels would take more memory than is left.
        UnsupportedError: Pillow is not installed.
    """
    if channels not in (0, 1, 3) or ratio not in (1, 2, 4, 8):
        message = f"JPEG images have 1 or 3 channels, not {channels}, by a ratio of 1, 2, 4 or 8"
        raise ValueError(message)
    image = _opened(data, "JPEG")
    mode = "L" if channels == 1 or (channels == 0 and image.mode == "L") else "RGB"
    wanted = tuple(-(-side // ratio) for side in image.size)
    # libjpeg converts and shrinks itself, more exactly than a conversion afterwards.
    image.draft(mode, tuple(max(side // ratio, 1) for side in image.size))
    if image.size != wanted:
        message = f"an image of {image.size[0]} x {image.size[1]} pixels is not shrunk by {ratio}"
        raise UnsupportedError(message, "use a larger image, or none of the attribute 'ratio'")
    return _pixels(image, mode)


def jpeg_shape(data: bytes) -> tuple[int, int, int]:
    """Height, width and channels of a JPEG image; raises as ``decode_jpeg`` does."""
    image = _opened(data, "JPEG")
    return image.size[1], image.size[0], len(image.getbands())


def decode_png(data: bytes, channels: int, *, wide: bool = False) -> Array:
    """The pixels of a PNG image; raises as ``decode_jpeg`` does.

    Args:
        data: the file.
        channels: 1 for luminance, 3 for RGB, 4 with transparency, 0 for what the image has.
        wide: whether to give 16 bits for each value.

    Returns:
        uint8, or uint16, [height, width, channels].
    """
    image = _opened(data, "PNG")
    deep = data[24] == 16
    if deep and wide and not image.mode.startswith("I"):
        message = "colours of 16 bits are not read by Pillow"
        raise UnsupportedError(message, "save the image with 8 bits for each channel")
    pixels = _with_channels(_png_pixels(image), channels)
    if wide:
        # A deep grey image holds 16 bits already; 0 to 255 spreads over 0 to 65535.
        return pixels if pixels.dtype == np.uint16 else pixels.astype(np.uint16) * np.uint16(257)
    return (pixels >> 8).astype(np.uint8) if pixels.dtype == np.uint16 else pixels


def decode_gif(data: bytes, *, first_only: bool = False) -> Array:
    """The frames of a GIF image as uint8 [frames, height, width, 3]; raises as ``decode_jpeg``."""
    image = _opened(data, "GIF")
    with _told("GIF"):
        count = 1 if first_only else getattr(image, "n_frames", 1)
    width, height = image.size
    if count * width * height * 3 > _MOST_FRAMES_BYTES:
        message = f"holds {count} frames of {width} x {height} pixels, which is too much"
        raise CorruptFileError(message, "use a smaller image", "GIF image")
    what = f"an image of {count} frames of {width} x {height} pixels"
    check_bytes((_AT_WORK + _KEPT * count) * width * height, what)
    frames = []
    for index in range(count):
        with _told("GIF"):
            image.seek(index)
        frames.append(_pixels(image, "RGB"))
    return np.stack(frames)


def _opened(data: bytes, kind: str) -> Any:  # noqa: ANN401 - an image of an optional library
    """An image of one kind, its header read and its pixels not."""
    with _told(kind):
        image = _pillow().open(io.BytesIO(data), formats=[kind])
    width, height = image.size
    if width * height > _MOST_PIXELS:
        message = f"has {width} x {height} pixels, which is too much"
        raise CorruptFileError(message, "use a smaller image", f"{kind} image")
    return image


@contextlib.contextmanager
def _told(kind: str) -> Iterator[None]:
    """What Pillow says of a damaged image, whichever of its calls finds it, as our error."""
    pillow = _pillow()
    try:
        with warnings.catch_warnings():
            # Pillow's own bound is told by a warning; ours is checked when the size is known.
            warnings.simplefilter("ignore", pillow.DecompressionBombWarning)
            yield
    except pillow.UnidentifiedImageError as error:
        raise _damaged(kind, "its header is not understood") from error
    except (*_FAULTS, pillow.DecompressionBombError) as error:
        raise _damaged(kind, str(error)) from error


def _pillow() -> Any:  # noqa: ANN401
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        message = "images are decoded by Pillow, which is not installed"
        raise UnsupportedError(message, "pip install 'mobileprep[image]'") from error


def _pixels(image: Any, mode: str) -> Array:  # noqa: ANN401
    """An image's pixels [height, width, channels] in one of Pillow's modes."""
    width, height = image.size
    check_bytes(_AT_WORK * width * height, f"an image of {width} x {height} pixels")
    with _told(str(image.format)):
        converted = image if image.mode == mode else image.convert(mode)
        pixels: Array = np.asarray(converted)
    return pixels if pixels.ndim == 3 else pixels[..., np.newaxis]


def _damaged(kind: str, reason: str) -> CorruptFileError:
    return CorruptFileError(f"is damaged: {reason}", "save the image again", f"{kind} image")


def _png_pixels(image: Any) -> Array:  # noqa: ANN401
    """Grey, grey with transparency, RGB or RGBA values, as the file has them."""
    if image.mode.startswith("I"):
        return _pixels(image, image.mode).astype(np.uint16)
    if image.mode == "P":
        return _pixels(image, "RGBA" if "transparency" in image.info else "RGB")
    return _pixels(image, "L" if image.mode == "1" else image.mode)


def _with_channels(pixels: Array, channels: int) -> Array:
    """Values turned into 1, 3 or 4 channels; 0 leaves them as they are."""
    found = pixels.shape[-1]
    if channels in (0, found):
        return pixels
    if channels not in (1, 3, 4):
        message = f"PNG images have 1, 3 or 4 channels, not {channels}"
        raise ValueError(message)
    colours = pixels[..., : found - 1] if found % 2 == 0 else pixels
    if channels == 1:
        return _luminance(colours) if colours.shape[-1] == 3 else colours
    colours = np.broadcast_to(colours, (*colours.shape[:-1], 3))
    if channels == 3:
        return colours
    opaque = np.full_like(pixels[..., :1], np.iinfo(pixels.dtype).max)
    return np.concatenate([colours, pixels[..., -1:] if found % 2 == 0 else opaque], axis=-1)


def _luminance(colours: Array) -> Array:
    total = (colours * _LUMA).sum(axis=-1, keepdims=True, dtype=np.uint32)
    luma: Array = (total >> _LUMA_SHIFT).astype(colours.dtype)
    return luma
