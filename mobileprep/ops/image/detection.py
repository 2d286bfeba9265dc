"""The post-processor of detection models that LiteRT has as a custom operator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.non_max_suppression import Boxes, SuppressionLimits, suppress
from mobileprep.ops.arrays import check_allocation
from mobileprep.ops.common_costs import depends_on_values
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("TFLite_Detection_PostProcess")
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
        kept = [suppress(of_class, Boxes(boxes).overlap, limits) for of_class in foreground.T]
        places = np.concatenate([np.zeros(0, np.intp), *kept])
        numbers = np.repeat(np.arange(classes), [len(places) for places in kept])
    else:
        per_box = min(node.attr_int("max_classes_per_detection", 1), classes)
        limits = SuppressionLimits(min(most, count), overlap, least)
        best = suppress(foreground.max(axis=1), Boxes(boxes).overlap, limits)
        order = np.argsort(-foreground[best], axis=1, kind="stable")[:, :per_box]
        places, numbers = np.repeat(best, per_box), order.reshape(-1)
        total = len(best)
    found = foreground[places, numbers]
    if node.attr_bool("use_regular_nms", False):
        best = np.argsort(-found, kind="stable")[:most]
        places, numbers, found = places[best], numbers[best], found[best]
        total = len(best)
    size, slots = len(found), most * node.attr_int("max_classes_per_detection", 1)
    outputs = (np.zeros((1, slots, 4), np.float32), *np.zeros((2, 1, slots), np.float32))
    outputs[0][0, :size], outputs[1][0, :size] = boxes[places], numbers
    outputs[2][0, :size] = found
    return (*outputs, np.array([total], np.float32))


@shape_fn("TFLite_Detection_PostProcess")
def detection_postprocess_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Boxes, classes, scores, and their number."""
    per_box = args.node.attr_int("max_classes_per_detection", 1)
    size = args.node.attr_int("max_detections") * per_box
    return [(1, size, 4), (1, size), (1, size), (1,)]


flop_rule("TFLite_Detection_PostProcess")(depends_on_values)


def _decoded(encodings: Array, anchors: Array) -> Array:
    """Boxes [boxes, 4] as two corners each."""
    centers = encodings[:, :2] * anchors[:, 2:] + anchors[:, :2]
    halves = np.exp(encodings[:, 2:]) * anchors[:, 2:] * np.float32(0.5)
    return np.concatenate([centers - halves, centers + halves], axis=1).astype(np.float32)
