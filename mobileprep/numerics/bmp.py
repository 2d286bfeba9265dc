"""Uncompressed BMP images as arrays."""

from __future__ import annotations

import struct

import numpy as np

from mobileprep.errors import CorruptFileError
from mobileprep.ir.tensor import Array

_HEADER = struct.Struct("<10xi4xii2xH2x")
_FILE = "BMP image"


def decode_bmp(data: bytes, channels: int) -> Array:
    """The pixels of an uncompressed BMP image with 8, 24 or 32 bits for each.

    Values of 8 bits are taken for grey, as TensorFlow does, whatever the palette says.

    Args:
        data: the file.
        channels: 3 for RGB, 4 with transparency, 0 for what the image has.

    Returns:
        uint8 [height, width, channels].

    Raises:
        CorruptFileError: the header is impossible, or the length does not fit it.
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
    """Blue, green, red (and transparency), or grey values, as the channels wanted."""
    depth = pixels.shape[-1]
    if depth == 1:
        colours = np.broadcast_to(pixels, (*pixels.shape[:2], min(channels, 3)))
    else:
        colours = pixels[..., 2::-1]
    if channels < 4:
        return np.ascontiguousarray(colours)
    alpha = pixels[..., 3:] if depth == 4 else np.full_like(pixels[..., :1], 255)
    return np.concatenate([colours, alpha], axis=-1)
