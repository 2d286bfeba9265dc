"""Decoding, colors, patches, and drawn boxes of images."""

from __future__ import annotations

import math

import numpy as np

from mobileprep.errors import CorruptFileError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import as_array, check_allocation, integers
from mobileprep.ops.image.non_max_suppression import Boxes, SuppressionLimits, suppress
from mobileprep.ops.kernel import depends_on_values, free, kernel, per_output
from mobileprep.ops.nn.pooling import window_places
from mobileprep.ops.numerics.image_files import (
    decode_bmp,
    decode_gif,
    decode_jpeg,
    decode_png,
    image_kind,
    jpeg_shape,
)
from mobileprep.ops.numerics.texts import file_contents
from mobileprep.ops.numerics.windows import NHWC, attr_window, patches, spatial, whole_tile
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    ShapeConflictError,
    at_least_rank,
    fixed,
    input_at_least,
    merge_dim,
    multiply_dims,
    scalars_only,
    shape_fn,
    with_rank,
)


@kernel("RGBToHSV", flops=per_output(4))
def rgb_to_hsv(node: Node, images: Array) -> Array:
    """Convert to hue, saturation, and value, each from 0 to 1, along the last axis."""
    return np.stack(_hsv(images), axis=-1)


def _hsv(images: Array) -> tuple[Array, Array, Array]:
    red, green, blue = _channels(images)
    value = images.max(axis=-1)
    spread = value - images.min(axis=-1)
    saturation = np.divide(spread, value, out=np.zeros_like(value), where=value > 0)
    norm = np.divide(images.dtype.type(1 / 6), spread, out=np.zeros_like(value), where=spread > 0)
    third = images.dtype.type(1 / 3)
    hue = np.where(
        red == value,
        (green - blue) * norm,
        np.where(green == value, (blue - red) * norm + third, (red - green) * norm + 2 * third),
    )
    hue = np.where(spread > 0, hue, 0).astype(images.dtype)
    return np.where(hue < 0, hue + 1, hue), saturation, value


@kernel("HSVToRGB", flops=per_output(5))
def hsv_to_rgb(node: Node, images: Array) -> Array:
    """Convert to red, green, and blue, each from 0 to 1, along the last axis."""
    return _rgb(*_channels(images))


@shape_fn("RGBToHSV", "HSVToRGB")
def colors_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape, whose last dimension has three channels."""
    shape = at_least_rank(args.shapes[0], 1)
    return [None if shape is None else (*shape[:-1], merge_dim(shape[-1], 3))]


def _rgb(hue: Array, saturation: Array, value: Array) -> Array:
    place = hue * hue.dtype.type(6)
    # A sawtooth of each color over the circle of hues.
    sides = [np.abs(place - 3) - 1, 2 - np.abs(place - 2), 2 - np.abs(place - 4)]
    pure = np.clip(np.stack(sides, axis=-1), 0, 1).astype(hue.dtype)
    mixed = (1 - saturation[..., None]) + saturation[..., None] * pure
    out: Array = np.multiply(mixed, value[..., None], dtype=hue.dtype)
    return out


@kernel("AdjustHue", flops=per_output(10))
def adjust_hue(node: Node, images: Array, delta: Array) -> Array:
    """Shift the hue of images by a fraction of the circle, from -1 to 1."""
    hue, saturation, value = _hsv(images.astype(np.float32))
    turned = np.mod(hue + np.float32(delta.reshape(())), np.float32(1))
    return _rgb(turned, saturation, value).astype(images.dtype)


@kernel("AdjustSaturation", flops=per_output(10))
def adjust_saturation(node: Node, images: Array, scale: Array) -> Array:
    """Multiply the saturation of images, up to 1."""
    hue, saturation, value = _hsv(images.astype(np.float32))
    strong = np.clip(saturation * np.float32(scale.reshape(())), 0, 1)
    return _rgb(hue, strong, value).astype(images.dtype)


@kernel("AdjustContrastv2", flops=per_output(4))
def adjust_contrast(node: Node, images: Array, factor: Array) -> Array:
    """Multiply each channel's distance from its mean."""
    if images.ndim < 3:
        message = "height, width and channels are needed"
        raise ValueError(message)
    # numpy warns about the mean of an empty array.
    pixels = np.float32(images.shape[-3] * images.shape[-2])
    mean = images.sum(axis=(-3, -2), keepdims=True, dtype=np.float32) / pixels
    spread = (images - mean) * np.float32(factor.reshape(())) + mean
    return as_array(spread, images).astype(images.dtype)


shape_fn("AdjustContrast", "AdjustContrastv2", "AdjustHue", "AdjustSaturation")(input_at_least(3))


def _channels(images: Array) -> tuple[Array, Array, Array]:
    if images.ndim < 1 or images.shape[-1] != 3:
        message = "three channels are needed along the last axis"
        raise ValueError(message)
    return images[..., 0], images[..., 1], images[..., 2]


@kernel("ExtractImagePatches", flops=free)
def extract_image_patches(node: Node, x: Array) -> Array:
    """Return the pixels of each window, concatenated along the last axis."""
    if x.ndim != 4:
        message = "four axes are needed"
        raise ValueError(message)
    size = spatial(node.attr_ints("ksizes"), NHWC)
    window = attr_window(node, x.shape[1:3], size, dilations=node.attr_ints("rates"))
    positions = window.positions(x.shape[1:3])
    pixels = patches(x, window, whole_tile(x, window), positions)
    return np.ascontiguousarray(pixels).reshape(len(x), *positions, math.prod(size) * x.shape[3])


@shape_fn("ExtractImagePatches")
def extract_image_patches_shape(args: ShapeArgs) -> OutputShapes:
    """Return the elements of each window as channels."""
    image, sizes = with_rank(args.shapes[0], 4), args.node.attr_ints("ksizes")
    if len(sizes) != 4:
        message = "4 window sizes are needed"
        raise ShapeConflictError(message)
    rows, columns = window_places(args.node, image, sizes[1:3])
    return [(image[0], rows, columns, multiply_dims(image[3], sizes[1] * sizes[2]))]


@kernel("TFLite_Detection_PostProcess", flops=depends_on_values)
def detection_postprocess(
    node: Node, encodings: Array, scores: Array, anchors: Array
) -> tuple[Array, Array, Array, Array]:
    """Decode boxes, suppress overlapping ones, and sort them by score.

    Encodings are [1, boxes, 4], scores [1, boxes, classes], with or without a background class,
    and anchors [boxes, 4], as centers and sizes. Unlike NonMaxSuppressionV3, a box of exactly the
    score threshold counts.

    Source: ``detection_postprocess.cc`` of TensorFlow Lite.
    """
    classes, most = node.attr_int("num_classes"), node.attr_int("max_detections")
    count = len(anchors)
    expected = ((1, count, 4), (1, count), (count, 4))
    if (encodings.shape, scores.shape[:2], anchors.shape) != expected:
        message = f"encodings of {list(encodings.shape)}, scores of {list(scores.shape)}, and "
        message += f"anchors of {list(anchors.shape)}"
        raise ValueError(message)
    if not 0 <= scores.shape[2] - classes <= 1:
        message = f"scores of {scores.shape[2]} classes for num_classes={classes}"
        raise ValueError(message)
    scale = np.array([node.attr_float(f"{side}_scale") for side in "yxhw"], np.float32)
    boxes = _decoded(encodings[0] / scale, anchors)
    foreground = scores[0, :, scores.shape[2] - classes :]
    least = float(np.nextafter(np.float32(node.attr_float("nms_score_threshold")), np.float32(-1)))
    overlap = node.attr_float("nms_iou_threshold")
    check_allocation((most * node.attr_int("max_classes_per_detection", 1), 4), boxes.dtype)
    if node.attr_bool("use_regular_nms", False):
        per_class = node.attr_int("detections_per_class", 100)
        limits = SuppressionLimits(min(per_class, count), overlap, least)
        selections = [suppress(of_class, Boxes(boxes).overlap, limits) for of_class in foreground.T]
        places = np.concatenate([np.zeros(0, np.intp), *selections])
        numbers = np.repeat(np.arange(classes), [len(places) for places in selections])
        best = np.argsort(-foreground[places, numbers], kind="stable")[:most]
        places, numbers = places[best], numbers[best]
    else:
        per_box = min(node.attr_int("max_classes_per_detection", 1), classes)
        limits = SuppressionLimits(min(most, count), overlap, least)
        best = suppress(foreground.max(axis=1), Boxes(boxes).overlap, limits)
        order = np.argsort(-foreground[best], axis=1, kind="stable")[:, :per_box]
        places, numbers = np.repeat(best, per_box), order.reshape(-1)
    box_scores, total = foreground[places, numbers], len(best)
    size, slots = len(box_scores), most * node.attr_int("max_classes_per_detection", 1)
    outputs = (np.zeros((1, slots, 4), np.float32), *np.zeros((2, 1, slots), np.float32))
    outputs[0][0, :size], outputs[1][0, :size] = boxes[places], numbers
    outputs[2][0, :size] = box_scores
    return (*outputs, np.array([total], np.float32))


@shape_fn("TFLite_Detection_PostProcess")
def detection_postprocess_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of boxes, classes, scores, and their number."""
    per_box = args.node.attr_int("max_classes_per_detection", 1)
    size = args.node.attr_int("max_detections") * per_box
    return [(1, size, 4), (1, size), (1, size), (1,)]


def _decoded(encodings: Array, anchors: Array) -> Array:
    """Decode boxes [boxes, 4] to two corners each."""
    centers = encodings[:, :2] * anchors[:, 2:] + anchors[:, :2]
    halves = np.exp(encodings[:, 2:]) * anchors[:, 2:] * np.float32(0.5)
    return np.concatenate([centers - halves, centers + halves], axis=1).astype(np.float32)


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
        pixels = _as_type(
            decode_png(data, _wanted_channels(node), wide=dtype is not DType.UINT8), dtype
        )
        return pixels[np.newaxis] if node.op == "DecodeGif" else pixels
    if kind == "JPEG":
        pixels = decode_jpeg(data, _wanted_channels(node), node.attr_int("ratio", 1))
        pixels = pixels[np.newaxis] if node.op == "DecodeGif" else pixels
    elif kind == "GIF":
        pixels = _gif(node, data)
    elif kind == "BMP" and node.op == "DecodeImage":
        pixels = decode_bmp(data, _wanted_channels(node))
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
    pixels = decode_jpeg(data, _wanted_channels(node), node.attr_int("ratio", 1))
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
    return decode_bmp(data, _wanted_channels(node))


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


def _wanted_channels(node: Node) -> int:
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
