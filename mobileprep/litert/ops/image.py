"""Pictures: resizing, blocks of pixels, boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.library import flexbuffer
from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import as_given, channels_last, last_shape, pad
from mobileprep.litert.types import NAMES, need_float

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


@lowering("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3")
def non_max_suppression(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """NON_MAX_SUPPRESSION_V4, whose padding is cut off."""
    indices, count = _suppressed(scope, node, inputs)
    if _most(scope, node) == 0:
        # LiteRT's interpreter rejects a result of SLICE that has no elements.
        return indices
    ends = scope.emit("EXPAND_DIMS", [count, _zero(scope)], (1,), DType.INT32, "ExpandDimsOptions")
    values = [indices, scope.integers_constant([0], "begin"), ends]
    return scope.emit("SLICE", values, (-1,), DType.INT32, "SliceOptions")


@lowering("NonMaxSuppressionV4")
def padded_suppression(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """NON_MAX_SUPPRESSION_V4, which pads with zeros always."""
    if not node.attr_bool("pad_to_max_output_size", False):
        indices, count = _suppressed(scope, node, inputs)
        zero = _zero(scope)
        ends = scope.emit("EXPAND_DIMS", [count, zero], (1,), DType.INT32, "ExpandDimsOptions")
        values = [indices, scope.integers_constant([0], "begin"), ends]
        return scope.emit("SLICE", values, (-1,), DType.INT32, "SliceOptions"), count
    return _suppressed(scope, node, inputs)


@lowering("NonMaxSuppressionV5")
def soft_suppression(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """NON_MAX_SUPPRESSION_V5."""
    need_float(node, [*inputs[:2], *inputs[3:]])
    most = _most(scope, node)
    outputs = [((most,), DType.INT32), ((most,), DType.FLOAT), ((), DType.INT32)]
    values = list(inputs)
    if float(scope.needed(node, 5, "sigma")) > 0:
        # TensorFlow ignores the threshold then. LiteRT does not, and drops a box that it has taken
        # by its overlap with itself, which is 1.
        values[3] = scope.constant(np.array(1, np.float32), "overlap")
    table = "NonMaxSuppressionV5Options"
    made = scope.emit_many("NON_MAX_SUPPRESSION_V5", values, outputs, table)
    if node.attr_bool("pad_to_max_output_size", False):
        return made
    zero = _zero(scope)
    ends = scope.emit("EXPAND_DIMS", [made[2], zero], (1,), DType.INT32, "ExpandDimsOptions")
    begin = scope.integers_constant([0], "begin")
    cut = tuple(
        scope.emit("SLICE", [value, begin, ends], (-1,), value.dtype, "SliceOptions")
        for value in made[:2]
    )
    return (*cut, made[2])


def _suppressed(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    need_float(node, inputs[:2])
    boxes, scores, most = inputs[:3]
    if node.op == "NonMaxSuppression":
        overlap = scope.constant(np.array(node.attr_float("iou_threshold", 0.5), np.float32))
    else:
        overlap = inputs[3]
    least = inputs[4] if len(inputs) > 4 else _lowest(scope)
    outputs = [((_most(scope, node),), DType.INT32), ((), DType.INT32)]
    values = [boxes, scores, most, overlap, least]
    table = "NonMaxSuppressionV4Options"
    return scope.emit_many("NON_MAX_SUPPRESSION_V4", values, outputs, table)


def _most(scope: Scope, node: Node) -> int:
    known = scope.known(node, 2)
    return -1 if known is None else int(known)


def _zero(scope: Scope) -> Value:
    return scope.constant(np.array(0, np.int32), "axis")


def _lowest(scope: Scope) -> Value:
    return scope.constant(np.array(np.finfo(np.float32).min, np.float32), "least_score")


@lowering("TFLite_Detection_PostProcess")
def detections(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """The custom operator of that name, which exporters of detection models put into graphs.

    It gives boxes [1, n, 4], classes [1, n], scores [1, n] and the number of detections [1].
    """
    need_float(node, inputs)
    most = node.attr_int("max_detections")
    per_box = node.attr_int("max_classes_per_detection", 1)
    options: dict[str, int | bool | float] = {
        "max_detections": most,
        "max_classes_per_detection": per_box,
        "detections_per_class": node.attr_int("detections_per_class", 100),
        "use_regular_nms": node.attr_bool("use_regular_nms", False),
        "num_classes": node.attr_int("num_classes"),
    }
    for name in ("nms_score_threshold", "nms_iou_threshold", *(f"{s}_scale" for s in "yxhw")):
        options[name] = node.attr_float(name)
    count = most * per_box
    shapes = [(1, count, 4), (1, count), (1, count), (1,)]
    outputs = [(shape, DType.FLOAT) for shape in shapes]
    return scope.emit_custom(node.op, inputs, outputs, flexbuffer(options))


@lowering("ExtractImagePatches")
def patches(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """A STRIDED_SLICE for each element of the window, joined along the channels."""
    image, shape = inputs[0], scope.output_shape(node)
    sizes, strides, rates = (node.attr_ints(key)[1:3] for key in ("ksizes", "strides", "rates"))
    if image.shape is None or shape is None or min(*image.shape[1:], *shape[1:]) < 1:
        reason = "the size of its image is not known"
        raise CannotExpressError(reason, GIVE_SHAPES)
    if math.prod(sizes) > _MOST_PATCHES:
        reason = f"its window of {sizes[0]} by {sizes[1]} has more than {_MOST_PATCHES} elements"
        raise CannotExpressError(reason, "extract smaller patches")
    places = shape[1:3]
    margins = np.zeros((4, 2), np.int64)
    if node.attr_str("padding") == "SAME":
        for axis in (0, 1):
            span = (places[axis] - 1) * strides[axis] + (sizes[axis] - 1) * rates[axis] + 1
            total = max(span - image.shape[axis + 1], 0)
            margins[axis + 1] = total // 2, total - total // 2
    padded = pad(scope, image, margins)
    channels = image.shape[3]
    parts = []
    for offset in np.ndindex(*sizes):
        begin = [place * rate for place, rate in zip(offset, rates, strict=True)]
        ends = [
            start + (count - 1) * stride + 1
            for start, count, stride in zip(begin, places, strides, strict=True)
        ]
        bounds = ([0, *begin, 0], [0, *ends, channels], [1, *strides, 1])
        given = [padded, *(scope.integers_constant(bound, "slice") for bound in bounds)]
        kept = (image.shape[0], *places, channels)
        masks = {"begin_mask": 1, "end_mask": 1}
        parts.append(
            scope.emit("STRIDED_SLICE", given, kept, image.dtype, "StridedSliceOptions", **masks)
        )
    if len(parts) == 1:
        return parts[0]
    return scope.emit("CONCATENATION", parts, shape, image.dtype, "ConcatenationOptions", axis=3)
