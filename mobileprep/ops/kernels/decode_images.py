"""Kernels that decode images."""

from __future__ import annotations

import numpy as np

from mobileprep.errors import CorruptFileError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.bmp import decode_bmp
from mobileprep.ops.image_files import decode_gif, decode_jpeg, decode_png, image_kind
from mobileprep.ops.kernel import kernel

_BYTE = np.float32(1 / 255)
_WORD = np.float32(1 / 65535)


@kernel("DecodeJpeg", "DecodePng", "DecodeGif", "DecodeImage")
def decode_image(node: Node, contents: Array) -> Array:
    """The pixels of an encoded image.

    Each of the ops decodes JPEG, PNG and GIF; ``DecodeImage`` decodes BMP too.

    Returns:
        [height, width, channels]; of ``DecodeGif`` and, of animations, of ``DecodeImage``,
        [frames, height, width, channels].
    """
    data = _scalar(contents)
    dtype = node.attr_dtype("dtype", DType.UINT8)
    kind = image_kind(data)
    if kind == "PNG":
        pixels = _as_type(decode_png(data, _channels(node), wide=dtype is not DType.UINT8), dtype)
        return pixels[np.newaxis] if node.op == "DecodeGif" else pixels
    if kind == "JPEG":
        pixels = decode_jpeg(data, _channels(node), node.attr_int("ratio", 1))
        pixels = pixels[np.newaxis] if node.op == "DecodeGif" else pixels
    elif kind == "GIF":
        pixels = _gif(node, data)
    elif kind == "BMP" and node.op == "DecodeImage":
        pixels = decode_bmp(data, _channels(node))
    else:
        raise _unknown(node)
    return _as_type(pixels, dtype)


@kernel("DecodeBmp")
def decode_bmp_image(node: Node, contents: Array) -> Array:
    """The pixels of a BMP image, uint8 [height, width, channels]."""
    data = _scalar(contents)
    if image_kind(data) != "BMP":
        raise _unknown(node)
    return decode_bmp(data, _channels(node))


def _gif(node: Node, data: bytes) -> Array:
    if node.attr_int("channels", 3) not in (0, 3):
        message = f"GIF images have 3 channels, not {node.attr_int('channels')}"
        raise ValueError(message)
    if node.op == "DecodeImage" and not node.attr_bool("expand_animations", True):
        return np.squeeze(decode_gif(data, first_only=True), axis=0)
    frames = decode_gif(data)
    if node.op in ("DecodeGif", "DecodeImage"):
        return frames
    if len(frames) > 1:
        message = f"an animation of {len(frames)} frames is no single image"
        raise ValueError(message)
    return np.squeeze(frames, axis=0)


def _channels(node: Node) -> int:
    return 3 if node.op == "DecodeGif" else node.attr_int("channels", 0)


def _as_type(pixels: Array, dtype: DType) -> Array:
    """Values as 8 bits, as 16, or from 0 to 1.

    JPEG and its like are spread by 256 over 16 bits, PNG by 257, as TensorFlow does.
    """
    if dtype is DType.FLOAT:
        spread: Array = pixels * (_WORD if pixels.dtype == np.uint16 else _BYTE)
        return spread
    if dtype is DType.UINT16 and pixels.dtype == np.uint8:
        return np.left_shift(pixels, 8, dtype=np.uint16)
    return pixels


def _scalar(contents: Array) -> bytes:
    if contents.size != 1 or contents.dtype != object:
        message = "the contents of one file are needed"
        raise ValueError(message)
    return bytes(contents.reshape(-1)[0])


def _unknown(node: Node) -> CorruptFileError:
    kinds = {"DecodeBmp": "BMP", "DecodeImage": "JPEG, PNG, GIF or BMP"}
    message = f"node {node.name!r} ({node.op}) is fed what is no image that it decodes"
    return CorruptFileError(message, f"feed it {kinds.get(node.op, 'JPEG, PNG or GIF')}")
