"""Image decoding ops."""

from __future__ import annotations

import numpy as np

from mobileprep.errors import CorruptFileError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import integers
from mobileprep.ops.cost import free
from mobileprep.ops.kernel import kernel
from mobileprep.ops.numerics.image_files import (
    decode_bmp,
    decode_gif,
    decode_jpeg,
    decode_png,
    image_kind,
    jpeg_shape,
)
from mobileprep.ops.numerics.texts import file_contents
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    at_least_rank,
    fixed,
    scalars_only,
    shape_fn,
)

_BYTE = np.float32(1 / 255)
_WORD = np.float32(1 / 65535)
_EDGES = 4


@kernel("DecodeJpeg", "DecodePng", "DecodeGif", "DecodeImage", flops=free)
def decode_image(node: Node, contents: Array) -> Array:
    """Decode an image.

    Each of the ops decodes JPEG, PNG, and GIF; ``DecodeImage`` also decodes BMP.

    Returns:
        [height, width, channels]; for ``DecodeGif``, and for ``DecodeImage`` of animations,
        [frames, height, width, channels].
    """
    data = file_contents(contents)
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


@shape_fn("DecodeJpeg", "DecodePng", "DecodeBmp")
def decode_image_shape(args: ShapeArgs) -> OutputShapes:
    """Return an image of unknown size; the channels may be known."""
    return [(UNKNOWN, UNKNOWN, _given_channels(args.node))]


shape_fn("DecodeGif")(fixed((UNKNOWN, UNKNOWN, UNKNOWN, 3)))


@shape_fn("DecodeImage")
def decode_any_image_shape(args: ShapeArgs) -> OutputShapes:
    """Return an image of unknown size, or several if animations are expanded."""
    if args.node.attr_bool("expand_animations", True):
        return [None]
    return decode_image_shape(args)


@kernel("DecodeAndCropJpeg", flops=free)
def decode_and_crop_jpeg(node: Node, contents: Array, window: Array) -> Array:
    """Decode a JPEG image and crop it to a window [4]: top, left, height, and width.

    TensorFlow decodes only the blocks under the window. If colors are stored at half the
    resolution, those in the last column then lack a neighbor, and differ slightly from these.
    """
    data, edges = _jpeg(node, contents), integers(window)
    if len(edges) != _EDGES or min(edges) < 0 or min(edges[2:]) < 1:
        message = f"{list(edges)} is not a window"
        raise ValueError(message)
    top, left, height, width = edges
    pixels = decode_jpeg(data, _channels(node), node.attr_int("ratio", 1))
    if top + height > pixels.shape[0] or left + width > pixels.shape[1]:
        message = f"the window {list(edges)} is not within {pixels.shape[0]} x {pixels.shape[1]}"
        raise ValueError(message)
    return pixels[top : top + height, left : left + width]


@shape_fn("DecodeAndCropJpeg")
def decode_and_crop_jpeg_shape(args: ShapeArgs) -> OutputShapes:
    """Return an image of the window's size; the channels may be known."""
    window = args.integers(1)
    if window is None or len(window) != _EDGES:
        return decode_image_shape(args)
    return [(*window[2:], _given_channels(args.node))]


@kernel("ExtractJpegShape", shape=fixed((3,)), flops=free)
def extract_jpeg_shape(node: Node, contents: Array) -> Array:
    """Return the height, width, and channels of a JPEG image from its header."""
    shape = jpeg_shape(_jpeg(node, contents))
    return np.array(shape, node.attr_dtype("output_type", DType.INT32).numpy)


@kernel("DecodeBmp", flops=free)
def decode_bmp_image(node: Node, contents: Array) -> Array:
    """Decode a BMP image as uint8 [height, width, channels]."""
    data = file_contents(contents)
    if image_kind(data) != "BMP":
        raise _unknown(node)
    return decode_bmp(data, _channels(node))


def _jpeg(node: Node, contents: Array) -> bytes:
    data = file_contents(contents)
    if image_kind(data) != "JPEG":
        raise _unknown(node)
    return data


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
        message = f"an animation of {len(frames)} frames is not a single image"
        raise ValueError(message)
    return np.squeeze(frames, axis=0)


def _channels(node: Node) -> int:
    return 3 if node.op == "DecodeGif" else node.attr_int("channels", 0)


def _given_channels(node: Node) -> int:
    """Return the channels that a node requests; unknown if it uses those of the file."""
    return node.attr_int("channels", 0) or UNKNOWN


def _as_type(pixels: Array, dtype: DType) -> Array:
    """Convert pixels to 8 bits, 16 bits, or floats from 0 to 1.

    To 16 bits, JPEG and similar formats are scaled by 256, PNG by 257, like in TensorFlow.
    """
    if dtype is DType.FLOAT:
        spread: Array = pixels * (_WORD if pixels.dtype == np.uint16 else _BYTE)
        return spread
    if dtype is DType.UINT16 and pixels.dtype == np.uint8:
        return np.left_shift(pixels, 8, dtype=np.uint16)
    return pixels


def _unknown(node: Node) -> CorruptFileError:
    kinds = {
        "DecodeAndCropJpeg": "JPEG",
        "DecodeBmp": "BMP",
        "DecodeImage": "JPEG, PNG, GIF or BMP",
        "ExtractJpegShape": "JPEG",
    }
    message = f"node {node.name!r} ({node.op}) cannot decode its input"
    return CorruptFileError(message, f"feed it {kinds.get(node.op, 'JPEG, PNG or GIF')}")


shape_fn("EncodeJpeg")(scalars_only)


@shape_fn("EncodePng")
def encode_png_shape(args: ShapeArgs) -> OutputShapes:
    """Return a string for each image."""
    image = at_least_rank(args.shapes[0], 3)
    return [None if image is None else image[:-3]]
