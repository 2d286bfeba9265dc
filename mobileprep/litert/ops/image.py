"""Images: resizing, blocks of pixels, patches, colors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.litert.arithmetic import Arithmetic
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import as_given, channels_last, known_size, last_shape, pad, reshaped
from mobileprep.litert.types import NAMES, need_float
from mobileprep.ops.kernel import find_kernel

# Below all spreads of colors, and far enough above 0 to divide by.
_TINY: Final = 1e-30
# Elements of a window, each of which is an operator.
_MOST_PATCHES: Final = 1 << 10
_RESIZES: Final = {
    "ResizeBilinear": ("RESIZE_BILINEAR", "ResizeBilinearOptions"),
    "ResizeNearestNeighbor": ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"),
}


@lowering(*_RESIZES)
def resize(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """RESIZE_BILINEAR, whose result is float32 as TensorFlow's, and RESIZE_NEAREST_NEIGHBOR."""
    code, table = _RESIZES[node.op]
    image = inputs[0]
    if node.op == "ResizeBilinear" and image.dtype is not DType.FLOAT:
        kinds = {"in_data_type": NAMES[image.dtype], "out_data_type": "FLOAT32"}
        image = scope.emit("CAST", [image], image.shape, DType.FLOAT, "CastOptions", **kinds)
    return scope.emit(
        code,
        [image, inputs[1]],
        scope.output_shape(node),
        image.dtype,
        table,
        align_corners=node.attr_bool("align_corners", False),
        half_pixel_centers=node.attr_bool("half_pixel_centers", False),
    )


@lowering("ResizeArea")
def resize_area(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """BATCH_MATMUL with the shares of pixels along height, then along width."""
    need_float(node, inputs[:1])
    image = inputs[0]
    sizes = scope.integers(node, 1, "size")
    batch, height, width, depth = ([-1] * 4) if image.shape is None else image.shape
    if min(height, width, depth) < 1:
        reason = "the size of its image is not known"
        raise CannotExpressError(reason, GIVE_SHAPES)
    rows = _shares(node, height, sizes[0])
    flat = reshaped(scope, image, (batch, height, width * depth))
    shape, table = (batch, sizes[0], width * depth), "BatchMatMulOptions"
    tall = scope.emit("BATCH_MATMUL", [scope.constant(rows), flat], shape, DType.FLOAT, table)
    columns = _shares(node, width, sizes[1])
    count = -1 if batch < 0 else batch * sizes[0]
    flat = reshaped(scope, tall, (count, width, depth))
    shape = (count, sizes[1], depth)
    wide = scope.emit("BATCH_MATMUL", [scope.constant(columns), flat], shape, DType.FLOAT, table)
    return reshaped(scope, wide, (batch, *sizes, depth))


def _shares(node: Node, count: int, wanted: int) -> Array:
    """The share of each pixel of a line in each pixel of the resized line."""
    kernel = find_kernel(node.op)
    assert kernel is not None
    pixels = np.eye(count, dtype=np.float32).reshape(1, count, 1, count)
    found = kernel(node, pixels, np.array([wanted, 1], np.int32))
    return np.asarray(found, np.float32).reshape(wanted, count)


@lowering("SpaceToDepth", "DepthToSpace")
def blocks(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """SPACE_TO_DEPTH and DEPTH_TO_SPACE."""
    if node.attr_str("data_format", "NHWC") == "NCHW_VECT_C":
        msg = "its channels are in vectors"
        raise CannotExpressError(msg, "put the channels last")
    forward = node.op == "SpaceToDepth"
    code = "SPACE_TO_DEPTH" if forward else "DEPTH_TO_SPACE"
    done = scope.emit(
        code,
        [channels_last(scope, node, inputs[0])],
        last_shape(node, scope.output_shape(node)),
        inputs[0].dtype,
        "SpaceToDepthOptions" if forward else "DepthToSpaceOptions",
        block_size=node.attr_int("block_size"),
    )
    return as_given(scope, node, done)


@lowering("ExtractImagePatches")
def patches(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """A STRIDED_SLICE for each element of the window, joined along the channels."""
    image, shape = inputs[0], scope.output_shape(node)
    sizes, strides, rates = (node.attr_ints(key)[1:3] for key in ("ksizes", "strides", "rates"))
    channels = known_size(image, 3)
    parts, _ = windows(scope, image, shape, (sizes, strides, rates), node.attr_str("padding"))
    if len(parts) == 1:
        return parts[0]
    whole = (*(shape or ())[:3], channels * len(parts))
    return scope.emit("CONCATENATION", parts, whole, image.dtype, "ConcatenationOptions", axis=3)


def windows(
    scope: Scope,
    image: Value,
    shape: TensorShape,
    steps: Sequence[Sequence[int]],
    padding: str,
    fill: float | None = None,
) -> tuple[list[Value], tuple[int, int]]:
    """The elements of all windows, a tensor for each place in a window, and the padding before.

    Args:
        scope: where operators are emitted.
        image: [batch, height, width, channels].
        shape: [batch, rows, columns, any] with the numbers of windows.
        steps: sizes, strides, and rates along height and width.
        padding: ``SAME`` or ``VALID``.
        fill: what to pad with, None for zeros.
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
        given = [padded, *(scope.integers_constant(bound, "slice") for bound in bounds)]
        kept = (image.shape[0], *places, image.shape[3])
        masks = {"begin_mask": 9, "end_mask": 9}
        parts.append(
            scope.emit("STRIDED_SLICE", given, kept, image.dtype, "StridedSliceOptions", **masks)
        )
    return parts, (int(margins[1, 0]), int(margins[2, 0]))


@lowering("AdjustContrastv2")
def adjust_contrast(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """(x - mean) * factor + mean, with the mean of each channel."""
    need_float(node, inputs)
    image, factor = inputs
    work = Arithmetic(scope)
    mean = work.reduce("MEAN", image, -3, -2)
    return work.add(work.mul(work.sub(image, mean), factor), mean)


@lowering("AdjustSaturation")
def adjust_saturation(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """The distance of each channel from the largest one, scaled by the change of saturation."""
    need_float(node, inputs)
    image, scale = inputs
    work = Arithmetic(scope)
    value, chroma = _value_and_chroma(work, image)
    saturation = work.div(chroma, work.maximum(value, _TINY))
    changed = work.minimum(work.maximum(work.mul(saturation, scale), 0.0), 1.0)
    factor = work.div(work.mul(changed, value), work.maximum(chroma, _TINY))
    return work.sub(value, work.mul(factor, work.sub(value, image)))


@lowering("AdjustHue")
def adjust_hue(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """The hue as a number from 0 to 6, turned, and the three channels that it stands for."""
    need_float(node, inputs)
    image, delta = inputs
    work = Arithmetic(scope)
    value, chroma = _value_and_chroma(work, image)
    axis = scope.integers_constant(np.array(-1))
    shape = None if image.shape is None else (*image.shape[:-1], 1)
    outputs, options = [(shape, image.dtype)] * 3, {"num_splits": 3}
    red, green, blue = scope.emit_many("SPLIT", [axis, image], outputs, "SplitOptions", **options)
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
    # The share of each channel that is missing is a sawtooth over the circle of hues.
    missing = [
        work.sub(2.0, work.one("ABS", work.sub(turned, 3.0))),
        *(work.sub(work.one("ABS", work.sub(turned, place)), 1.0) for place in (2.0, 4.0)),
    ]
    channels = [
        work.sub(value, work.mul(chroma, work.minimum(work.maximum(share, 0.0), 1.0)))
        for share in missing
    ]
    table = "ConcatenationOptions"
    return scope.emit("CONCATENATION", channels, image.shape, image.dtype, table, axis=-1)


def _value_and_chroma(work: Arithmetic, image: Value) -> tuple[Value, Value]:
    """The largest channel, and its distance from the smallest, 0 for values that are not positive.

    Raises:
        CannotExpressError: the image does not have three channels.
    """
    if image.shape is None or image.shape[-1] != 3:
        reason = "the number of its channels is not known to be 3"
        raise CannotExpressError(reason, GIVE_SHAPES)
    value, least = (work.reduce(code, image, -1) for code in ("REDUCE_MAX", "REDUCE_MIN"))
    is_bright = work.compare("GREATER", value, 0.0)
    return value, work.select(is_bright, work.sub(value, least), 0.0)
