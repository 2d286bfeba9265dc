"""Shapes of ops on images and on boxes in them."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.dims import (
    UNKNOWN,
    ShapeConflictError,
    at_least_rank,
    dim,
    merge_dim,
    with_rank,
)
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn


@shape_fn("ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor")
def resize(args: ShapeArgs) -> Sequence[TensorShape]:
    """Images of the given height and width."""
    shape = with_rank(args.shapes[0], 4)
    return [(shape[0], *_size(args, 1), shape[3])]


@shape_fn("QuantizedResizeBilinear")
def quantized_resize(args: ShapeArgs) -> Sequence[TensorShape]:
    """Images of the given height and width, and their range."""
    return [*resize(args), (), ()]


@shape_fn("ScaleAndTranslate")
def scale_and_translate(args: ShapeArgs) -> Sequence[TensorShape]:
    """Images of the given height and width."""
    return resize(args)


@shape_fn("ResizeBilinearGrad", "ResizeBicubicGrad", "ScaleAndTranslateGrad")
def resize_gradient(args: ShapeArgs) -> Sequence[TensorShape]:
    """The original images' shape."""
    return [args.shapes[1]]


@shape_fn("ResizeNearestNeighborGrad")
def resize_nearest_gradient(args: ShapeArgs) -> Sequence[TensorShape]:
    """Images of the given height and width."""
    return resize(args)


def _size(args: ShapeArgs, index: int) -> tuple[int, int]:
    with_rank(args.shapes[index], 1)
    size = args.integers(index)
    if size is None:
        return UNKNOWN, UNKNOWN
    if len(size) != 2:
        message = f"a size needs height and width, not {list(size)}"
        raise ShapeConflictError(message)
    return size[0], size[1]


@shape_fn("CropAndResize")
def crop_and_resize(args: ShapeArgs) -> Sequence[TensorShape]:
    """A crop of the given size for each box."""
    channels = with_rank(args.shapes[0], 4)[3]
    boxes = with_rank(args.shapes[1], 2)[0]
    count = merge_dim(boxes, with_rank(args.shapes[2], 1)[0])
    return [(count, *_size(args, 3), channels)]


@shape_fn("ExtractGlimpse", "ExtractGlimpseV2")
def extract_glimpse(args: ShapeArgs) -> Sequence[TensorShape]:
    """A part of the given size for each offset."""
    shape = with_rank(args.shapes[0], 4)
    batch = merge_dim(shape[0], with_rank(args.shapes[2], 2)[0])
    return [(batch, *_size(args, 1), shape[3])]


@shape_fn("DrawBoundingBoxes", "DrawBoundingBoxesV2")
def draw_bounding_boxes(args: ShapeArgs) -> Sequence[TensorShape]:
    """The images' shape."""
    return [at_least_rank(args.shapes[0], 3)]


@shape_fn("RGBToHSV", "HSVToRGB")
def colours(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, whose last dimension holds three channels."""
    shape = at_least_rank(args.shapes[0], 1)
    return [None if shape is None else (*shape[:-1], merge_dim(shape[-1], 3))]


@shape_fn("AdjustContrast")
def adjust_contrast(args: ShapeArgs) -> Sequence[TensorShape]:
    """The images' shape."""
    return [at_least_rank(args.shapes[0], 3)]


@shape_fn("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionWithOverlaps")
def non_max_suppression(args: ShapeArgs) -> Sequence[TensorShape]:
    """As many indices as boxes are selected."""
    return [(UNKNOWN,)]


@shape_fn("NonMaxSuppressionV3")
def non_max_suppression_v3(args: ShapeArgs) -> Sequence[TensorShape]:
    """As many indices as boxes are selected."""
    merge_dim(with_rank(args.shapes[0], 2)[0], with_rank(args.shapes[1], 1)[0])
    return [(UNKNOWN,)]


@shape_fn("NonMaxSuppressionV4")
def non_max_suppression_v4(args: ShapeArgs) -> Sequence[TensorShape]:
    """Indices, as many as there may be where they are padded, and how many are valid."""
    return [(_padded(args),), ()]


@shape_fn("NonMaxSuppressionV5")
def non_max_suppression_v5(args: ShapeArgs) -> Sequence[TensorShape]:
    """Indices and scores, as many as there may be where they are padded, and how many."""
    size = _padded(args)
    return [(size,), (size,), ()]


def _padded(args: ShapeArgs) -> int:
    padded = args.node.attr_bool("pad_to_max_output_size", False)
    most = args.scalar(2) if padded else None
    return UNKNOWN if most is None else most


@shape_fn("CombinedNonMaxSuppression")
def combined_non_max_suppression(args: ShapeArgs) -> Sequence[TensorShape]:
    """Boxes, scores and classes for each image, and how many of them are valid."""
    batch = merge_dim(dim(args.shapes[0], 0), dim(args.shapes[1], 0))
    per_class, total = args.scalar(2), args.scalar(3)
    kept = total
    if args.node.attr_bool("pad_per_class", False):
        classes = dim(args.shapes[1], 2)
        known = per_class is not None and total is not None and classes >= 0
        kept = min(total or 0, (per_class or 0) * classes) if known else None
    size = UNKNOWN if kept is None else kept
    return [(batch, size, 4), (batch, size), (batch, size), (batch,)]


@shape_fn("SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2")
def sample_distorted_bounding_box(args: ShapeArgs) -> Sequence[TensorShape]:
    """Where the box begins, its size, and the box."""
    return [(3,), (3,), (1, 1, 4)]


@shape_fn("DecodeJpeg", "DecodePng", "DecodeAndCropJpeg")
def decode_image(args: ShapeArgs) -> Sequence[TensorShape]:
    """An image of unknown size; the channels may be given."""
    channels = args.node.attr_int("channels", 0)
    size: tuple[int, int] = (UNKNOWN, UNKNOWN)
    if args.node.op == "DecodeAndCropJpeg":
        window = args.integers(1)
        size = size if window is None or len(window) != 4 else (window[2], window[3])
    return [(*size, channels or UNKNOWN)]


@shape_fn("DecodeBmp", "DecodeImage", "DecodeGif")
def decode_other_image(args: ShapeArgs) -> Sequence[TensorShape]:
    """An image of unknown size."""
    if args.node.op == "DecodeImage" and args.node.attr_bool("expand_animations", True):
        return [None]
    if args.node.op == "DecodeGif":
        return [(UNKNOWN, UNKNOWN, UNKNOWN, 3)]
    return [(UNKNOWN, UNKNOWN, args.node.attr_int("channels", 0) or UNKNOWN)]


@shape_fn("EncodePng")
def encode_png(args: ShapeArgs) -> Sequence[TensorShape]:
    """A text for each image."""
    image = at_least_rank(args.shapes[0], 3)
    return [None if image is None else image[:-3]]


@shape_fn("EncodeJpeg", "ExtractJpegShape")
def jpeg(args: ShapeArgs) -> Sequence[TensorShape]:
    """A text; of the shape of an encoded image, three numbers."""
    return [(3,) if args.node.op == "ExtractJpegShape" else ()]
