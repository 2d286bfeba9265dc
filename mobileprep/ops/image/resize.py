"""Resizing and cropping images."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct

from mobileprep.core.limits import spend
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import check_allocation, integers
from mobileprep.ops.kernel import Sizes, flop_rule, free, kernel, per_output
from mobileprep.ops.numerics.resizing import (
    Sampling,
    resize_area,
    resize_bicubic,
    resize_bilinear,
    resize_nearest,
)
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    ShapeConflictError,
    fixed,
    input_at_least,
    merge_dim,
    shape_fn,
    with_rank,
)


def given_size(args: ShapeArgs, index: int) -> tuple[int, int]:
    """Return height and width from an input; -1 if unknown."""
    with_rank(args.shapes[index], 1)
    size = args.integers(index)
    if size is None:
        return UNKNOWN, UNKNOWN
    if len(size) != 2:
        message = f"a size needs height and width, not {list(size)}"
        raise ShapeConflictError(message)
    return size[0], size[1]


Resize = Callable[[Array, tuple[int, int], Sampling], Array]

_FLOAT = np.dtype(np.float32)
_METHODS: dict[str, Resize] = {
    "ResizeArea": resize_area,
    "ResizeBicubic": resize_bicubic,
    "ResizeBilinear": resize_bilinear,
    "ResizeNearestNeighbor": resize_nearest,
}


@kernel(*_METHODS)
def resize(node: Node, images: Array, size: Array) -> Array:
    """Return [batch, *size, channels], float32 except for nearest neighbors.

    The attributes ``align_corners`` and ``half_pixel_centers`` exclude each other.
    """
    nearest = node.op == "ResizeNearestNeighbor"
    sampling = Sampling.of(node)
    if sampling.align_corners and sampling.half_pixel:
        message = "align_corners and half_pixel_centers exclude each other"
        raise ValueError(message)
    new_size = _size(images, size, images.dtype if nearest else _FLOAT)
    return _METHODS[node.op](images, new_size, sampling)


@shape_fn(*_METHODS, "ResizeNearestNeighborGrad", "ScaleAndTranslate")
def resize_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of images of the requested height and width."""
    shape = with_rank(args.shapes[0], 4)
    return [(shape[0], *given_size(args, 1), shape[3])]


flop_rule("ResizeNearestNeighbor")(free)


# Three interpolations, each a difference, a product, and a sum.
bilinear_flops = per_output(9)
flop_rule("ResizeBilinear")(bilinear_flops)


# Five weighted sums of four elements.
flop_rule("ResizeBicubic")(per_output(35))


@flop_rule("ResizeArea")
def area_flops(sizes: Sizes) -> float:
    """Count a product and a sum for each covered element."""
    return 2 * max(sizes.input_elements(), sizes.output_elements())


def _size(images: Array, size: Array, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the new height and width, checked before allocating the image."""
    new_size = integers(size)
    if images.ndim != 4 or len(new_size) != 2:
        message = "four axes are needed, and a size of two"
        raise ValueError(message)
    height, width = new_size
    if min(height, width, *images.shape[1:3]) < 1:
        message = f"no image of {height} x {width} pixels or in {list(images.shape)}"
        raise ValueError(message)
    # The pixel positions along each axis are computed even without images.
    batch, channels = max(len(images), 1), max(images.shape[3], 1)
    check_allocation((batch, height, width, channels), dtype)
    return height, width


@shape_fn("ResizeBilinearGrad", "ResizeBicubicGrad", "ScaleAndTranslateGrad")
def resize_gradient_shape(args: ShapeArgs) -> OutputShapes:
    """Return the original images' shape."""
    return [args.shapes[1]]


# Operations for an element of a crop.
_COST = 1 << 13


class _Grid(Struct, frozen=True):
    """Positions of the rows, or columns, of the crops in their images.

    Args:
        place: [boxes, count] float32.
        inside: [boxes, count], whether the position is within the image.
    """

    place: Array
    inside: Array


@kernel("CropAndResize")
def crop_and_resize(node: Node, images: Array, boxes: Array, owners: Array, size: Array) -> Array:
    """Crop each box and resize all crops to one size.

    Args:
        node: with ``method`` bilinear or nearest, and ``extrapolation_value`` for positions outside
            of the image.
        boxes: [boxes, 4] float32, as y, x, y, x with 1 for the last row or column.
        owners: [boxes] int32, the image of each box.
        size: [2], the crops' height and width.
    """
    height, width = _checked(images, boxes, owners, size)
    rows = _grid(boxes[:, 0], boxes[:, 2], images.shape[1], height)
    columns = _grid(boxes[:, 1], boxes[:, 3], images.shape[2], width)
    method = node.attr_str("method", "bilinear")
    if method == "bilinear":
        crops = _bilinear(images, owners, rows.place, columns.place)
    elif method == "nearest":
        crops = _picked(images, owners, _rounded(rows.place), _rounded(columns.place))
    else:
        message = f"unknown method {method!r}"
        raise ValueError(message)
    inside = rows.inside[:, :, None] & columns.inside[:, None, :]
    outside = np.float32(node.attr_float("extrapolation_value", 0.0))
    return np.where(inside[..., None], crops, outside)


@shape_fn("CropAndResize")
def crop_and_resize_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of a crop of the requested size for each box."""
    channels = with_rank(args.shapes[0], 4)[3]
    count, edges = with_rank(args.shapes[1], 2)
    merge_dim(edges, 4)
    count = merge_dim(count, with_rank(args.shapes[2], 1)[0])
    return [(count, *given_size(args, 3), channels)]


@flop_rule("CropAndResize")
def crops_flops(sizes: Sizes) -> float:
    """Count three interpolations for each element; nearest neighbors are free."""
    return (
        0 if sizes.node.attr_str("method", "bilinear") == "nearest" else 9 * sizes.output_elements()
    )


def _checked(images: Array, boxes: Array, owners: Array, size: Array) -> tuple[int, int]:
    new_size = integers(size)
    if images.ndim != 4 or boxes.shape != (len(owners), 4) or len(new_size) != 2:
        message = "images of four axes, four numbers a box, and a size of two are needed"
        raise ValueError(message)
    if min(*new_size, *images.shape[1:3]) < 1:
        message = f"no crops of {new_size[0]} x {new_size[1]} pixels"
        raise ValueError(message)
    if owners.size and not 0 <= int(owners.min()) <= int(owners.max()) < images.shape[0]:
        message = f"boxes of images that are not among the {images.shape[0]}"
        raise ValueError(message)
    shape = (len(boxes), *new_size, images.shape[3])
    check_allocation(shape, np.dtype(np.float32))
    spend(_COST * math.prod(shape), "interpolating")
    return new_size[0], new_size[1]


def _grid(start: Array, end: Array, extent: int, count: int) -> _Grid:
    last = np.float32(extent - 1)
    if count > 1:
        scale = (end - start) * last / np.float32(count - 1)
        place = start[:, None] * last + np.arange(count, dtype=np.float32) * scale[:, None]
    else:
        place = ((start + end) * np.float32(0.5) * last)[:, None]
    inside = (place >= 0) & (place <= last)
    return _Grid(np.where(inside, place, np.float32(0)), inside)


def _rounded(place: Array) -> Array:
    # Round halves up, since positions are not negative: numpy's rounding would round to even.
    up: Array = np.floor(place + np.float32(0.5))
    return up.astype(np.int64)


def _picked(images: Array, owners: Array, rows: Array, columns: Array) -> Array:
    pixels: Array = images[owners[:, None, None], rows[:, :, None], columns[:, None, :]]
    return pixels.astype(np.float32)


def _bilinear(images: Array, owners: Array, rows: Array, columns: Array) -> Array:
    top, bottom = np.floor(rows), np.ceil(rows)
    left, right = np.floor(columns), np.ceil(columns)
    down = (rows - top)[:, :, None, None]
    across = (columns - left)[:, None, :, None]

    def line(place: Array) -> Array:
        near, far = (
            _picked(images, owners, place.astype(np.int64), side.astype(np.int64))
            for side in (left, right)
        )
        between: Array = near + (far - near) * across
        return between

    upper = line(top)
    crops: Array = upper + (line(bottom) - upper) * down
    return crops


@shape_fn("ExtractGlimpse", "ExtractGlimpseV2")
def extract_glimpse_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of a glimpse of the requested size of each image."""
    shape = with_rank(args.shapes[0], 4)
    batch = merge_dim(shape[0], with_rank(args.shapes[2], 2)[0])
    return [(batch, *given_size(args, 1), shape[3])]


shape_fn("DrawBoundingBoxes", "DrawBoundingBoxesV2")(input_at_least(3))


shape_fn("SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2")(fixed((3,), (3,), (1, 1, 4)))
