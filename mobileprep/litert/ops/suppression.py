"""Non-maximum suppression of boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.flatbuffer import number_map
from mobileprep.graph.node import Node
from mobileprep.litert.arithmetic import Arithmetic, IndexArithmetic
from mobileprep.litert.ops.segments import joined
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.scope import Scope, lowering
from mobileprep.litert.shapes import gather, known_size, pad, reshaped
from mobileprep.litert.types import need_float

# Maximum number of images times classes; each is an operator.
_MOST_RUNS: Final = 1 << 10
_LOWEST: Final = float(np.finfo(np.float32).min)


@lowering("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3")
def non_max_suppression(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit NON_MAX_SUPPRESSION_V4, and slice off its padding."""
    indices, count = _suppressed(scope, node, inputs)
    if _most(scope, node) == 0:
        # LiteRT's interpreter rejects a result of SLICE that has no elements.
        return indices
    return _first(scope, [indices], count)[0]


@lowering("NonMaxSuppressionV4")
def padded_suppression(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Emit NON_MAX_SUPPRESSION_V4, which always pads with zeros; slice off unwanted padding."""
    indices, count = _suppressed(scope, node, inputs)
    if node.attr_bool("pad_to_max_output_size", False):
        return indices, count
    return *_first(scope, [indices], count), count


def _first(scope: Scope, values: Sequence[Value], count: Value) -> tuple[Value, ...]:
    """Emit SLICEs of the first elements of vectors."""
    axis = scope.constant(np.array(0, np.int32), "axis")
    ends = scope.emit("EXPAND_DIMS", [count, axis], (1,))
    begin = scope.integers_constant([0], "begin")
    return tuple(scope.emit("SLICE", [value, begin, ends], (-1,)) for value in values)


@lowering("NonMaxSuppressionV5")
def soft_suppression(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    need_float([*inputs[:2], *inputs[3:]])
    most = _most(scope, node)
    outputs = [((most,), DType.INT32), ((most,), DType.FLOAT), ((), DType.INT32)]
    values = list(inputs)
    if float(scope.needed(node, 5, "sigma")) > 0:
        # TensorFlow ignores the threshold in this case. LiteRT does not, and would drop a selected
        # box because of its overlap with itself, which is 1.
        values[3] = scope.constant(np.array(1, np.float32), "overlap")
    results = scope.emit_many("NON_MAX_SUPPRESSION_V5", values, outputs)
    if node.attr_bool("pad_to_max_output_size", False):
        return results
    return *_first(scope, results[:2], results[2]), results[2]


def _suppressed(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    need_float(inputs[:2])
    boxes, scores, most = inputs[:3]
    if node.op == "NonMaxSuppression":
        overlap = scope.constant(np.array(node.attr_float("iou_threshold", 0.5), np.float32))
    else:
        overlap = inputs[3]
    if len(inputs) > 4:
        least = inputs[4]
    else:
        least = scope.constant(np.array(_LOWEST, np.float32), "least_score")
    outputs = [((_most(scope, node),), DType.INT32), ((), DType.INT32)]
    values = [boxes, scores, most, overlap, least]
    return scope.emit_many("NON_MAX_SUPPRESSION_V4", values, outputs)


def _most(scope: Scope, node: Node) -> int:
    constant = scope.known_value(node, 2)
    return -1 if constant is None else int(constant)


@lowering("TFLite_Detection_PostProcess")
def detections(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Emit the custom operator of this name, which exporters of detection models add to graphs.

    Its outputs are boxes [1, n, 4], classes [1, n], scores [1, n], and the number of detections
    [1].
    """
    need_float(inputs)
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
    return scope.emit_custom(node.op, inputs, outputs, number_map(options))


@lowering("CombinedNonMaxSuppression")
def combined_suppression(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Emit NON_MAX_SUPPRESSION_V4 per image and class, then TOPK_V2 of each image's boxes."""
    need_float([*inputs[:2], *inputs[4:]])
    boxes, scores = inputs[:2]
    sizes = [*(boxes.shape or (-1,))[:1], *(boxes.shape or (-1,))[2:3], *(scores.shape or ())[2:]]
    if len(sizes) != 3 or -1 in sizes:
        reason = "the number of its images or classes is not known"
        raise CannotExpressError(reason, GIVE_SHAPES)
    images, box_classes, classes = sizes
    if images * classes > _MOST_RUNS:
        reason = f"{images} images of {classes} classes are more than {_MOST_RUNS} suppressions"
        raise CannotExpressError(reason, "convert it with a smaller batch")
    per_class, most = (int(scope.needed(node, i, "number of boxes").reshape(())) for i in (2, 3))
    if node.attr_bool("pad_per_class", False):
        most = min(most, per_class * classes)
    work = _Combined(scope, node, inputs[4:], per_class, most)
    suppressed = []
    for image in range(images):
        per_image = [
            work.best(
                _column(scope, boxes, [image, 0, c if box_classes > 1 else 0, 0], 4),
                _column(scope, scores, [image, 0, c], 1),
            )
            for c in range(classes)
        ]
        suppressed.append(work.joined(per_image))
    shapes = [(images, most, 4), (images, most), (images, most), (images,)]
    return tuple(
        scope.emit("PACK", parts, shape, values_count=images, axis=0)
        for parts, shape in zip(zip(*suppressed, strict=True), shapes, strict=True)
    )


class _Combined:
    """The lowering of one CombinedNonMaxSuppression node.

    Args:
        scope: where operators are emitted.
        node: the node, for ``clip_boxes``.
        limits: the maximum overlap and the minimum score.
        per_class: the maximum number of boxes per class.
        most: the maximum number of boxes per image.
    """

    def __init__(
        self, scope: Scope, node: Node, limits: Sequence[Value], per_class: int, most: int
    ) -> None:
        self._scope = scope
        self._is_clipped = node.attr_bool("clip_boxes", True)
        self._limits = limits
        self._per_class = per_class
        self._most = most

    def best(self, boxes: Value, scores: Value) -> tuple[Value, Value]:
        """Return the selected boxes and their scores; unused slots have the lowest float."""
        whole, count = IndexArithmetic(self._scope), self._per_class
        outputs = [((count,), DType.INT32), ((), DType.INT32)]
        values = [boxes, reshaped(self._scope, scores, (-1,)), whole.number(np.array(count))]
        indices, valid_count = self._scope.emit_many(
            "NON_MAX_SUPPRESSION_V4", [*values, *self._limits], outputs
        )
        is_kept = whole.less(whole.number(np.arange(count)), valid_count)
        chosen = gather(self._scope, values[1], indices)
        best = gather(self._scope, boxes, indices)
        return best, Arithmetic(self._scope).select(is_kept, chosen, _LOWEST)

    def joined(self, classes: Sequence[tuple[Value, Value]]) -> tuple[Value, Value, Value, Value]:
        """Return the best boxes of an image with their scores, classes, and number."""
        scope, work, count = self._scope, Arithmetic(self._scope), self._per_class
        total = count * len(classes)
        boxes, scores = (joined(scope, parts) for parts in zip(*classes, strict=True))
        numbers = scope.constant(np.repeat(np.arange(len(classes), dtype=np.float32), count))
        top_count = min(self._most, total)
        outputs = [((top_count,), DType.FLOAT), ((top_count,), DType.INT32)]
        operands = [scores, scope.integers_constant(np.array(top_count))]
        best, order = scope.emit_many("TOPK_V2", operands, outputs)
        is_kept = work.compare("GREATER", best, _LOWEST)
        chosen = gather(scope, boxes, order)
        if self._is_clipped:
            chosen = work.minimum(work.maximum(chosen, 0.0), 1.0)
        marks = work.cast(is_kept, DType.INT32)
        axes = scope.integers_constant([0], "axes")
        valid_count = scope.emit("SUM", [marks, axes], (), keep_dims=False)
        return (
            self._padded(work.select(reshaped(scope, is_kept, (top_count, 1)), chosen, 0.0)),
            self._padded(work.select(is_kept, best, 0.0)),
            self._padded(work.select(is_kept, gather(scope, numbers, order), 0.0)),
            valid_count,
        )

    def _padded(self, value: Value) -> Value:
        missing = self._most - known_size(value, 0)
        amounts = np.zeros((value.rank or 1, 2), np.int64)
        amounts[0, 1] = missing
        return pad(self._scope, value, amounts)


def _column(scope: Scope, value: Value, begin: Sequence[int], width: int) -> Value:
    """Return the numbers of one image and class as a matrix [boxes, width]."""
    sizes = [1, -1, *[1] * (len(begin) - 2)]
    if width > 1:
        sizes[-1] = width
    count = -1 if value.shape is None else value.shape[1]
    bounds = [scope.integers_constant(bound, "bound") for bound in (begin, sizes)]
    shape = tuple(count if size < 0 else size for size in sizes)
    part = scope.emit("SLICE", [value, *bounds], shape)
    return reshaped(scope, part, (count, width))
