"""Crop, resize, and adjust images with operators on pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.litert.arithmetic import Arithmetic, IndexArithmetic
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.scope import Scope, lowering
from mobileprep.litert.shapes import (
    as_int32,
    cast,
    channels_last,
    emit_as_given,
    gather,
    known_size,
    pad,
    reshaped,
)
from mobileprep.litert.types import need_float
from mobileprep.ops.kernel import find_kernel

_AXES: Final = (0, 1)


@lowering("CropAndResize")
def crop_and_resize(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """GATHER the nearest pixel of each sample, or blend four pixels."""
    need_float(inputs[:2])
    images, boxes = inputs[:2]
    if images.rank != 4:
        reason = "the rank of its images is not known to be 4"
        raise CannotExpressError(reason, GIVE_SHAPES)
    work, whole = Arithmetic(scope), IndexArithmetic(scope)
    crop = as_int32(scope, node, 3, inputs[3])
    samples = [_samples(scope, images, boxes, whole.element(crop, axis), axis) for axis in _AXES]
    rows, columns = samples
    owner = whole.reshaped(as_int32(scope, node, 2, inputs[2]), (-1, 1, 1))
    sizes = whole.sizes(images)
    pixels = whole.shaped(images, [whole.number(-1), sizes[3]])

    def picked(row: Value, column: Value) -> Value:
        """GATHER pixels at rows and columns of each box's image."""
        line = whole.add(whole.mul(owner, sizes[1]), row)
        places = whole.add(whole.mul(line, sizes[2]), column)
        return gather(scope, pixels, places)

    if node.attr_str("method", "bilinear") == "nearest":
        blended = picked(*(sample.place(work.add(sample.value, 0.5)) for sample in samples))
    else:
        mixed = [
            _mixed(work, [picked(row, column) for column in columns.ends], columns.share)
            for row in rows.ends
        ]
        blended = _mixed(work, mixed, rows.share)
    inside = _with_channels(scope, whole.both(rows.inside, columns.inside))
    outside = scope.constant(np.float32(node.attr_float("extrapolation_value", 0.0)))
    shape, operands = scope.output_shape(node), [inside, blended, outside]
    return scope.emit("SELECT_V2", operands, shape, blended.dtype)


class _Samples(Struct, frozen=True):
    """The positions of the samples of all boxes along one axis of the images.

    Args:
        scope: where operators are emitted.
        value: the coordinates, [boxes, height, 1] or [boxes, 1, width].
        last: the index of the last pixel.
    """

    scope: Scope
    value: Value
    last: Value

    def place(self, value: Value) -> Value:
        """Round coordinates down to an existing pixel."""
        work = Arithmetic(self.scope)
        return work.cast(self._clipped(work.one("FLOOR", value)), DType.INT32)

    @property
    def ends(self) -> list[Value]:
        """The pixels before and after each sample."""
        work = Arithmetic(self.scope)
        above = work.cast(self._clipped(work.one("CEIL", self.value)), DType.INT32)
        return [self.place(self.value), above]

    @property
    def share(self) -> Value:
        """The fractional distance of each sample from the first pixel to the second."""
        work = Arithmetic(self.scope)
        share = work.sub(self.value, work.one("FLOOR", self.value))
        return _with_channels(self.scope, share)

    @property
    def inside(self) -> Value:
        """Whether each sample is inside the image."""
        beyond = [
            Arithmetic(self.scope).compare(code, self.value, end)
            for code, end in (("LESS", 0.0), ("GREATER", self.last))
        ]
        outside = IndexArithmetic(self.scope).either(*beyond)
        return self.scope.emit("LOGICAL_NOT", [outside], outside.shape, DType.BOOL)

    def _clipped(self, value: Value) -> Value:
        work = Arithmetic(self.scope)
        return work.minimum(work.maximum(value, 0.0), self.last)


def _samples(scope: Scope, images: Value, boxes: Value, size: Value, axis: int) -> _Samples:
    """Compute samples in the same order of operations as TensorFlow.

    Rounding determines whether a sample at the edge is inside the image.
    """
    work, whole = Arithmetic(scope), IndexArithmetic(scope)
    last = work.cast(whole.sub(whole.sizes(images)[1 + axis], 1), DType.FLOAT)
    low, high = (_edge(scope, boxes, axis + 2 * end) for end in (0, 1))
    middle = work.mul(work.mul(work.add(low, high), 0.5), last)
    if size.data is not None and int(size.data) == 1:
        return _Samples(scope, middle, last)
    gaps = work.cast(whole.maximum(whole.sub(size, 1), 1), DType.FLOAT)
    step = work.div(work.mul(work.sub(high, low), last), gaps)
    line = (1, -1, 1) if axis == 0 else (1, 1, -1)
    places = work.cast(whole.reshaped(whole.range(size), line), DType.FLOAT)
    value = work.add(work.mul(low, last), work.mul(step, places))
    if size.data is None:
        value = work.select(whole.less(1, size), value, middle)
    return _Samples(scope, value, last)


def _edge(scope: Scope, boxes: Value, column: int) -> Value:
    count = -1 if boxes.shape is None else boxes.shape[0]
    which = scope.integers_constant(np.array(column))
    edge = scope.emit("GATHER", [boxes, which], (count,), axis=1, batch_dims=0)
    sizes = scope.integers_constant([-1, 1, 1])
    return scope.emit("RESHAPE", [edge, sizes], (count, 1, 1))


def _mixed(work: Arithmetic, ends: Sequence[Value], share: Value) -> Value:
    """Interpolate linearly between two values."""
    first, second = ends
    return work.add(first, work.mul(work.sub(second, first), share))


def _with_channels(scope: Scope, value: Value) -> Value:
    shape = (*(value.shape or ()), 1)
    axis = scope.integers_constant(np.array(-1))
    return scope.emit("EXPAND_DIMS", [value, axis], shape)


# Smaller than any color difference, but large enough as a divisor.
_TINY: Final = 1e-30
# Maximum number of elements in a window; each is an operator.
_MOST_PATCHES: Final = 1 << 10


@lowering("ResizeBilinear", "ResizeNearestNeighbor")
def resize(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit RESIZE_BILINEAR with a float32 result, as in TensorFlow, or RESIZE_NEAREST_NEIGHBOR."""
    image, is_bilinear = inputs[0], node.op == "ResizeBilinear"
    if is_bilinear and image.dtype is not DType.FLOAT:
        image = cast(scope, image, DType.FLOAT)
    return scope.emit(
        "RESIZE_BILINEAR" if is_bilinear else "RESIZE_NEAREST_NEIGHBOR",
        [image, inputs[1]],
        scope.output_shape(node),
        align_corners=node.attr_bool("align_corners", False),
        half_pixel_centers=node.attr_bool("half_pixel_centers", False),
    )


@lowering("ResizeArea")
def resize_area(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """BATCH_MATMUL with the weights of pixels along the height, then along the width."""
    need_float(inputs[:1])
    image = inputs[0]
    sizes = scope.integers(node, 1, "size")
    batch, height, width, depth = ([-1] * 4) if image.shape is None else image.shape
    if min(height, width, depth) < 1:
        reason = "the size of its image is not known"
        raise CannotExpressError(reason, GIVE_SHAPES)
    rows = _shares(node, height, sizes[0])
    flat = reshaped(scope, image, (batch, height, width * depth))
    shape = (batch, sizes[0], width * depth)
    tall = scope.emit("BATCH_MATMUL", [scope.constant(rows), flat], shape)
    columns = _shares(node, width, sizes[1])
    count = -1 if batch < 0 else batch * sizes[0]
    flat = reshaped(scope, tall, (count, width, depth))
    shape = (count, sizes[1], depth)
    wide = scope.emit("BATCH_MATMUL", [scope.constant(columns), flat], shape)
    return reshaped(scope, wide, (batch, *sizes, depth))


def _shares(node: Node, count: int, size: int) -> Array:
    """Return the weight of each pixel of a line in each pixel of the resized line."""
    kernel = find_kernel(node.op)
    assert kernel is not None
    pixels = np.eye(count, dtype=np.float32).reshape(1, count, 1, count)
    resized = kernel(node, pixels, np.array([size, 1], np.int32))
    return np.asarray(resized, np.float32).reshape(size, count)


@lowering("SpaceToDepth", "DepthToSpace")
def blocks(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit SPACE_TO_DEPTH or DEPTH_TO_SPACE."""
    if node.attr_str("data_format", "NHWC") == "NCHW_VECT_C":
        msg = "its channels are in vectors"
        raise CannotExpressError(msg, "put the channels last")
    code = "SPACE_TO_DEPTH" if node.op == "SpaceToDepth" else "DEPTH_TO_SPACE"
    image, size = channels_last(scope, node, inputs[0]), node.attr_int("block_size")
    return emit_as_given(scope, node, code, [image], image.dtype, block_size=size)


@lowering("ExtractImagePatches")
def patches(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit a STRIDED_SLICE for each element of the window, concatenated along the channels."""
    image, shape = inputs[0], scope.output_shape(node)
    sizes, strides, rates = (node.attr_ints(key)[1:3] for key in ("ksizes", "strides", "rates"))
    channels = known_size(image, 3)
    parts, _ = windows(scope, image, shape, (sizes, strides, rates), node.attr_str("padding"))
    if len(parts) == 1:
        return parts[0]
    whole = (*(shape or ())[:3], channels * len(parts))
    return scope.emit("CONCATENATION", parts, whole, axis=3)


def windows(
    scope: Scope,
    image: Value,
    shape: TensorShape,
    steps: Sequence[Sequence[int]],
    padding: str,
    fill: float | None = None,
) -> tuple[list[Value], tuple[int, int]]:
    """Return a tensor for each position in a window with its elements of all windows.

    Args:
        scope: where operators are emitted.
        image: [batch, height, width, channels].
        shape: the shape of the result.
        steps: sizes, strides, and dilation rates along height and width.
        padding: SAME or VALID.
        fill: the padding value; None for 0.

    Returns:
        The tensors, and the padding before height and width.
    """
    sizes, strides, rates = steps
    if image.shape is None or shape is None or min(*image.shape[1:3], *shape[1:3]) < 1:
        reason = "the size of its image is not known"
        raise CannotExpressError(reason, GIVE_SHAPES)
    if math.prod(sizes) > _MOST_PATCHES:
        reason = f"its window of {sizes[0]} by {sizes[1]} has more than {_MOST_PATCHES} elements"
        raise CannotExpressError(reason, "use smaller windows")
    places = shape[1:3]
    margins = np.zeros((4, 2), np.int64)
    if padding == "SAME":
        for axis in (0, 1):
            span = (places[axis] - 1) * strides[axis] + (sizes[axis] - 1) * rates[axis] + 1
            total = max(span - image.shape[axis + 1], 0)
            margins[axis + 1] = total // 2, total - total // 2
    padded = pad(scope, image, margins, fill)
    parts = []
    for offset in np.ndindex(*sizes):
        begin = [place * rate for place, rate in zip(offset, rates, strict=True)]
        ends = [
            start + (count - 1) * stride + 1
            for start, count, stride in zip(begin, places, strides, strict=True)
        ]
        bounds = ([0, *begin, 0], [0, *ends, 0], [1, *strides, 1])
        operands = [padded, *(scope.integers_constant(bound, "slice") for bound in bounds)]
        part_shape = (image.shape[0], *places, image.shape[3])
        masks = {"begin_mask": 9, "end_mask": 9}
        parts.append(scope.emit("STRIDED_SLICE", operands, part_shape, image.dtype, **masks))
    return parts, (int(margins[1, 0]), int(margins[2, 0]))


@lowering("AdjustContrastv2")
def adjust_contrast(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute (x - mean) * factor + mean, with the mean of each channel."""
    need_float(inputs)
    image, factor = inputs
    work = Arithmetic(scope)
    mean = work.reduce("MEAN", image, -3, -2)
    return work.add(work.mul(work.sub(image, mean), factor), mean)


@lowering("AdjustSaturation")
def adjust_saturation(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Scale the distance of each channel from the largest one by the change of saturation."""
    need_float(inputs)
    image, scale = inputs
    work = Arithmetic(scope)
    value, chroma = _value_and_chroma(work, image)
    saturation = work.div(chroma, work.maximum(value, _TINY))
    changed = work.minimum(work.maximum(work.mul(saturation, scale), 0.0), 1.0)
    factor = work.div(work.mul(changed, value), work.maximum(chroma, _TINY))
    return work.sub(value, work.mul(factor, work.sub(value, image)))


@lowering("AdjustHue")
def adjust_hue(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Rotate the hue, a number from 0 to 6, and convert it back to three channels."""
    need_float(inputs)
    image, delta = inputs
    work = Arithmetic(scope)
    value, chroma = _value_and_chroma(work, image)
    axis = scope.integers_constant(np.array(-1))
    shape = None if image.shape is None else (*image.shape[:-1], 1)
    outputs, options = [(shape, image.dtype)] * 3, {"num_splits": 3}
    red, green, blue = scope.emit_many("SPLIT", [axis, image], outputs, **options)
    divisor = work.maximum(chroma, _TINY)
    sides = [
        work.div(work.sub(one, other), divisor)
        for one, other in ((green, blue), (blue, red), (red, green))
    ]
    hue = work.select(
        work.compare("EQUAL", red, value),
        sides[0],
        work.select(
            work.compare("EQUAL", green, value), work.add(sides[1], 2.0), work.add(sides[2], 4.0)
        ),
    )
    turned = work.two("FLOOR_MOD", work.add(hue, work.mul(delta, 6.0)), 6.0)
    # The amount missing from each channel is a triangle wave over the hues.
    missing = [
        work.sub(2.0, work.one("ABS", work.sub(turned, 3.0))),
        *(work.sub(work.one("ABS", work.sub(turned, place)), 1.0) for place in (2.0, 4.0)),
    ]
    channels = [
        work.sub(value, work.mul(chroma, work.minimum(work.maximum(share, 0.0), 1.0)))
        for share in missing
    ]
    return scope.emit("CONCATENATION", channels, image.shape, axis=-1)


def _value_and_chroma(work: Arithmetic, image: Value) -> tuple[Value, Value]:
    """Return the largest channel and its difference to the smallest, 0 for non-positive values."""
    if image.shape is None or image.shape[-1] != 3:
        reason = "the number of its channels is not known to be 3"
        raise CannotExpressError(reason, GIVE_SHAPES)
    value, least = (work.reduce(code, image, -1) for code in ("REDUCE_MAX", "REDUCE_MIN"))
    is_bright = work.compare("GREATER", value, 0.0)
    return value, work.select(is_bright, work.sub(value, least), 0.0)
