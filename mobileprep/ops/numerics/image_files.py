"""Image files: formats, BMP, and photos."""

from __future__ import annotations

import contextlib
import importlib
import io
import struct
import warnings
from collections.abc import Iterator
from typing import Any, Final, Literal

import numpy as np
from msgspec import Struct

from mobileprep.errors import CorruptFileError, UnsupportedError, UsageError
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.allocation import OverBudgetError, check_bytes
from mobileprep.ops.numerics.resizing import Sampling, resize_bilinear

# TensorFlow's own limit: pixels of one image.
_MOST_PIXELS = 1 << 29
_MOST_FRAMES_BYTES = 1 << 32
# Bytes per pixel: memory for Pillow to decode, convert, and copy, or to compute luminance; and for
# each frame, which is stacked afterwards.
_AT_WORK = 16
_KEPT = 6

# Exceptions that Pillow raises for damaged files.
_FAULTS = (OSError, EOFError, SyntaxError, ValueError, LookupError, struct.error)

_MAGIC = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
)

# Luminance from red, green, and blue, as in libpng.
_LUMA = np.array([9798, 19235, 3735], np.uint32)
_LUMA_SHIFT = 15


def image_kind(data: bytes) -> str:
    """Detect JPEG, PNG, GIF, or BMP from the first bytes; return an empty string for others."""
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), "")


def decode_jpeg(data: bytes, channels: int, ratio: int = 1) -> Array:
    """Decode a JPEG image.

    TensorFlow decodes with a faster, less exact transform unless its attribute ``dct_method`` is
    INTEGER_ACCURATE. Its values then differ by up to about six, and by one on average.

    Args:
        channels: 1 for luminance, 3 for RGB, 0 for the channels of the image.
        ratio: factor by which to shrink while decoding: 1, 2, 4, or 8.

    Returns:
        uint8 [height, width, channels].

    Raises:
        CorruptFileError: the image is damaged or too large.
        UnsupportedError: Pillow is not installed, or cannot shrink the image by the ratio.
    """
    if channels not in (0, 1, 3) or ratio not in (1, 2, 4, 8):
        message = f"JPEG images have 1 or 3 channels, not {channels}, by a ratio of 1, 2, 4 or 8"
        raise ValueError(message)
    image = _opened(data, "JPEG")
    mode = "L" if channels == 1 or (channels == 0 and image.mode == "L") else "RGB"
    expected = tuple(-(-side // ratio) for side in image.size)
    # libjpeg converts and shrinks more exactly than a later conversion.
    image.draft(mode, tuple(max(side // ratio, 1) for side in image.size))
    if image.size != expected:
        message = f"an image of {image.size[0]} x {image.size[1]} pixels is not shrunk by {ratio}"
        raise UnsupportedError(message, "use a larger image, or none of the attribute 'ratio'")
    return _pixels(image, mode)


def jpeg_shape(data: bytes) -> tuple[int, int, int]:
    """Return the height, width, and channels of a JPEG image; raises as ``decode_jpeg`` does."""
    image = _opened(data, "JPEG")
    return image.size[1], image.size[0], len(image.getbands())


def decode_png(data: bytes, channels: int, *, wide: bool = False) -> Array:
    """Decode a PNG image; raises as ``decode_jpeg`` does.

    Args:
        channels: 1 for luminance, 3 for RGB, 4 with alpha, 0 for the channels of the image.
        wide: whether to return uint16.

    Returns:
        uint8, or uint16, [height, width, channels].
    """
    image = _opened(data, "PNG")
    deep = data[24] == 16
    if deep and wide and not image.mode.startswith("I"):
        message = "colors of 16 bits are not read by Pillow"
        raise UnsupportedError(message, "save the image with 8 bits for each channel")
    pixels = _with_channels(_png_pixels(image), channels)
    if wide:
        # A 16-bit gray image needs no scaling; 0 to 255 is scaled to 0 to 65535.
        return pixels if pixels.dtype == np.uint16 else pixels.astype(np.uint16) * np.uint16(257)
    return (pixels >> 8).astype(np.uint8) if pixels.dtype == np.uint16 else pixels


def decode_gif(data: bytes, *, first_only: bool = False) -> Array:
    """Decode a GIF image to uint8 [frames, height, width, 3]; raises as ``decode_jpeg`` does."""
    image = _opened(data, "GIF")
    with _pillow_errors("GIF"):
        count = 1 if first_only else getattr(image, "n_frames", 1)
    width, height = image.size
    if count * width * height * 3 > _MOST_FRAMES_BYTES:
        message = f"holds {count} frames of {width} x {height} pixels, which is too much"
        raise CorruptFileError(message, "use a smaller image", "GIF image")
    what = f"an image of {count} frames of {width} x {height} pixels"
    check_bytes((_AT_WORK + _KEPT * count) * width * height, what)
    frames = []
    for index in range(count):
        with _pillow_errors("GIF"):
            image.seek(index)
        frames.append(_pixels(image, "RGB"))
    return np.stack(frames)


def _opened(data: bytes, kind: str) -> Any:  # noqa: ANN401 - an image of an optional library
    """Open an image of one format and read only its header."""
    with _pillow_errors(kind):
        image = _pillow().open(io.BytesIO(data), formats=[kind])
    width, height = image.size
    if width * height > _MOST_PIXELS:
        message = f"has {width} x {height} pixels, which is too much"
        raise CorruptFileError(message, "use a smaller image", f"{kind} image")
    return image


@contextlib.contextmanager
def _pillow_errors(kind: str) -> Iterator[None]:
    """Convert the errors of Pillow for damaged images."""
    pillow = _pillow()
    try:
        with warnings.catch_warnings():
            # Pillow warns at its own limit; ours is checked when the size is known.
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
    """Return an image's pixels [height, width, channels] in one of Pillow's modes."""
    width, height = image.size
    check_bytes(_AT_WORK * width * height, f"an image of {width} x {height} pixels")
    with _pillow_errors(str(image.format)):
        converted = image if image.mode == mode else image.convert(mode)
        pixels: Array = np.asarray(converted)
    return pixels if pixels.ndim == 3 else pixels[..., np.newaxis]


def _damaged(kind: str, reason: str) -> CorruptFileError:
    return CorruptFileError(f"is damaged: {reason}", "save the image again", f"{kind} image")


def _png_pixels(image: Any) -> Array:  # noqa: ANN401
    """Return gray, gray with alpha, RGB, or RGBA values, as in the file."""
    if image.mode.startswith("I"):
        return _pixels(image, image.mode).astype(np.uint16)
    if image.mode == "P":
        return _pixels(image, "RGBA" if "transparency" in image.info else "RGB")
    return _pixels(image, "L" if image.mode == "1" else image.mode)


def _with_channels(pixels: Array, channels: int) -> Array:
    """Convert pixels to 1, 3, or 4 channels; 0 keeps the channels."""
    source_channels = pixels.shape[-1]
    if channels in (0, source_channels):
        return pixels
    if channels not in (1, 3, 4):
        message = f"PNG images have 1, 3 or 4 channels, not {channels}"
        raise ValueError(message)
    colors = pixels[..., : source_channels - 1] if source_channels % 2 == 0 else pixels
    if channels == 1:
        return _luminance(colors) if colors.shape[-1] == 3 else colors
    colors = np.broadcast_to(colors, (*colors.shape[:-1], 3))
    if channels == 3:
        return colors
    opaque = np.full_like(pixels[..., :1], np.iinfo(pixels.dtype).max)
    return np.concatenate(
        [colors, pixels[..., -1:] if source_channels % 2 == 0 else opaque], axis=-1
    )


def _luminance(colors: Array) -> Array:
    total = (colors * _LUMA).sum(axis=-1, keepdims=True, dtype=np.uint32)
    luma: Array = (total >> _LUMA_SHIFT).astype(colors.dtype)
    return luma


_HEADER = struct.Struct("<10xi4xii2xH2x")
_FILE = "BMP image"


def decode_bmp(data: bytes, channels: int) -> Array:
    """Decode an uncompressed BMP image with 8, 24, or 32 bits per pixel.

    8-bit values are read as gray, like in TensorFlow, regardless of the palette.

    Args:
        channels: 3 for RGB, 4 with alpha, 0 for the channels of the image.

    Raises:
        CorruptFileError: the image is damaged or has an unsupported format.
    """
    if channels not in (0, 3, 4):
        message = f"BMP images have 3 or 4 channels, not {channels}"
        raise ValueError(message)
    if len(data) < _HEADER.size:
        raise CorruptFileError("ends within its header", "save the image again", _FILE)  # noqa: EM101
    start, width, height, bits = _HEADER.unpack_from(data)
    depth, rows = bits // 8, abs(height)
    line = -(-depth * width // 4) * 4
    if depth not in (1, 3, 4) or width <= 0 or rows == 0 or start < 0:
        message = f"has {width} x {height} pixels of {bits} bits, which is not read"
        raise CorruptFileError(message, "save it uncompressed with 24 or 32 bits", _FILE)
    if start + line * rows != len(data):
        message = f"is {len(data)} bytes long, and its header says {start + line * rows}"
        raise CorruptFileError(message, "save the image again, uncompressed", _FILE)
    lines = np.frombuffer(data, np.uint8, line * rows, start).reshape(rows, line)
    pixels = lines[:, : depth * width].reshape(rows, width, depth)
    if height > 0:
        pixels = pixels[::-1]
    return _as_rgb(pixels, channels or depth)


def _as_rgb(pixels: Array, channels: int) -> Array:
    """Convert gray, or blue, green, red, and optional alpha values to the requested channels."""
    depth = pixels.shape[-1]
    if depth == 1:
        colors = np.broadcast_to(pixels, (*pixels.shape[:2], min(channels, 3)))
    else:
        colors = pixels[..., 2::-1]
    if channels < 4:
        return np.ascontiguousarray(colors)
    alpha = pixels[..., 3:] if depth == 4 else np.full_like(pixels[..., :1], 255)
    return np.concatenate([colors, alpha], axis=-1)


_APP1: Final = 0xE1
_ORIENTATION: Final = 0x0112
_PHOTO_LUMA = np.array([0.2989, 0.5870, 0.1140], np.float32)


class Normalization(Struct, frozen=True):
    """Size and normalization of a network's input image.

    Args:
        height, width: in pixels.
        mean: subtracted from each value of 0 to 255.
        std: divisor of each value after that.
    """

    height: int
    width: int
    mean: float = 0.0
    std: float = 255.0

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 1 or max(self.height, self.width) > 1 << 14:
            message = f"an image of {self.width} x {self.height} pixels is too large"
            raise UsageError(message, "give a width and a height from 1 to 16384")
        if self.std == 0:
            raise UsageError("values cannot be divided by 0", "give a standard deviation")  # noqa: EM101


def load_image(data: bytes, normalization: Normalization) -> Array:
    """Load the first frame of an image file as float32 [1, height, width, 3].

    Decodes as RGB, resizes with ``ResizeBilinear``, and normalizes like TensorFlow's
    ``label_image``.
    """
    pixels = decoded(data)[np.newaxis]
    resized = resize_bilinear(pixels, (normalization.height, normalization.width), Sampling())
    out: Array = (resized - np.float32(normalization.mean)) / np.float32(normalization.std)
    return out


def central_crop(pixels: Array, share: float) -> Array:
    """Crop the center of an image [height, width, channels], like ``tf.image.central_crop``.

    Args:
        share: share of each side to keep, above 0 and up to 1.
    """
    top, left = (int((size - size * share) / 2) for size in pixels.shape[:2])
    return pixels[top : pixels.shape[0] - top, left : pixels.shape[1] - left]


def decoded(data: bytes, channels: int = 3) -> Array:
    """Decode the first frame of an image file as uint8 [height, width, channels].

    Args:
        channels: 3 for RGB, 1 for luminance. For JPEG and PNG files, it is computed while decoding,
            like TensorFlow; for others, like ``tf.image.rgb_to_grayscale``.
    """
    try:
        return _decoded(data, channels)
    except OverBudgetError as error:
        raise CorruptFileError(str(error), "use a smaller image, or raise the limit") from error


def exif_orientation(data: bytes) -> int:
    """Return the EXIF orientation of a JPEG file, 1 to 8; 1 means upright.

    Decoders ignore it, including those of TensorFlow.
    """
    at = 2 if data.startswith(b"\xff\xd8") else len(data)
    while data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] not in (b"\xda", b"\xd9", b""):
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] == _APP1 and data[at + 4 : at + 10] == b"Exif\0\0":
            return _orientation(data[at + 10 : at + 2 + length])
        at += 2 + max(length, 2)
    return 1


def _orientation(tiff: bytes) -> int:
    """Return the orientation in the first directory of EXIF's TIFF header; 1 if there is none."""
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
    raise CorruptFileError("is not a JPEG, PNG, GIF, or BMP file", "convert the image")  # noqa: EM101


def _in_channels(pixels: Array, channels: int) -> Array:
    if channels == 3:
        return pixels
    # Like convert_image_dtype in both directions: values are truncated, not rounded.
    scaled = pixels.astype(np.float32) * np.float32(1 / 255)
    luma: Array = (scaled @ _PHOTO_LUMA)[..., np.newaxis] * np.float32(255.5)
    return luma.astype(np.uint8)
