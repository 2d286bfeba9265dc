"""Boxes and non-maximum suppression."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
from msgspec import Struct

from mobileprep.core.limits import STEP, spend
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import check_allocation, scalar
from mobileprep.ops.kernel import depends_on_values, kernel
from mobileprep.ops.numerics.allocation import check_kept
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    dim,
    merge_dim,
    shape_fn,
    with_rank,
)


@kernel("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3", flops=depends_on_values)
def non_max_suppression(
    node: Node,
    boxes: Array,
    scores: Array,
    count: Array,
    overlap: Array | None = None,
    least: Array | None = None,
) -> Array:
    """Return the indices of the selected boxes.

    Args:
        overlap: the threshold; an attribute in the first version.
        least: the minimum score, since the third version.
    """
    if overlap is None:
        overlap = np.array(node.attr_float("iou_threshold", 0.5), np.float32)
    if least is None:
        least = np.array(np.finfo(scores.dtype).min)
    limits = _limits(scores, count, overlap, least)
    return suppress(scores, _measured(boxes, scores).overlap, limits)


@shape_fn("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3")
def non_max_suppression_shape(args: ShapeArgs) -> OutputShapes:
    """Return an unknown number of indices."""
    _check_boxes(args)
    return [(UNKNOWN,)]


@kernel("NonMaxSuppressionV4", "NonMaxSuppressionV5", flops=depends_on_values)
def padded_non_max_suppression(
    node: Node,
    boxes: Array,
    scores: Array,
    count: Array,
    overlap: Array,
    least: Array,
    sigma: Array | None = None,
) -> tuple[Array, ...]:
    """Return the indices of the selected boxes, optionally padded with zeros, and their number.

    The fifth version also returns their scores. With a sigma above 0, overlapping boxes have
    reduced scores, and are selected if these suffice.
    """
    limits = _limits(scores, count, overlap, least)
    measured = _measured(boxes, scores)
    spread = 0.0 if sigma is None else float(sigma.reshape(()))
    if spread > 0:
        indices, lowered = suppress_softly(scores, measured.overlap, limits, spread)
    else:
        indices = suppress(scores, measured.overlap, limits)
        lowered = scores[indices]
    most, number = scalar(count), np.array(len(indices), np.int32)
    best = () if sigma is None else (_filled(node, lowered, most),)
    return (_filled(node, indices, most), *best, number)


@shape_fn("NonMaxSuppressionV4", "NonMaxSuppressionV5")
def padded_non_max_suppression_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of indices (and scores), of full length if padded, and their number."""
    _check_boxes(args)
    return [*[(_padded(args),)] * (args.count() - 1), ()]


@kernel("NonMaxSuppressionWithOverlaps", flops=depends_on_values)
def non_max_suppression_with_overlaps(
    node: Node, matrix: Array, scores: Array, count: Array, overlap: Array, least: Array
) -> Array:
    """Return the indices of the selected boxes for a matrix of pairwise overlaps."""
    if matrix.shape != (scores.size, scores.size):
        message = f"overlaps of shape {list(matrix.shape)} for {scores.size} scores"
        raise ValueError(message)
    limits = _limits(scores, count, overlap, least, bounded=False)
    return suppress(scores, lambda index: matrix[:, index], limits)


@shape_fn("NonMaxSuppressionWithOverlaps")
def non_max_suppression_with_overlaps_shape(args: ShapeArgs) -> OutputShapes:
    """Return an unknown number of indices."""
    rows, columns = with_rank(args.shapes[0], 2)
    merge_dim(rows, columns)
    merge_dim(rows, with_rank(args.shapes[1], 1)[0])
    return [(UNKNOWN,)]


@kernel("CombinedNonMaxSuppression", flops=depends_on_values)
def combined_non_max_suppression(
    node: Node,
    boxes: Array,
    scores: Array,
    per_class: Array,
    total: Array,
    overlap: Array,
    least: Array,
) -> tuple[Array, Array, Array, Array]:
    """Select the best boxes of all classes of each image, padded with zeros, and count them.

    Boxes are [images, boxes, 1 or classes, 4], scores [images, boxes, classes]. Classes are
    returned as floats. Boxes are clipped to 0 to 1 unless ``clip_boxes`` is false.
    """
    if boxes.ndim != 4 or boxes.shape != (*scores.shape[:2], boxes.shape[2], 4):
        message = f"boxes of shape {list(boxes.shape)} for scores of {list(scores.shape)}"
        raise ValueError(message)
    images, _, classes = scores.shape
    if boxes.shape[2] not in (1, classes):
        message = f"boxes of {boxes.shape[2]} classes for scores of {classes}"
        raise ValueError(message)
    most = scalar(total)
    if node.attr_bool("pad_per_class", False):
        most = min(most, scalar(per_class) * classes)
    check_allocation((images, most, 4), boxes.dtype)
    out_boxes = np.zeros((images, most, 4), np.float32)
    out = np.zeros((2, images, most), np.float32)
    counts = np.zeros(images, np.int32)
    for image in range(images):
        survivors, numbers, best = _best_of_classes(
            boxes[image], scores[image], (per_class, overlap, least)
        )
        count = counts[image] = min(most, len(best))
        out_boxes[image, :count] = survivors[:count]
        out[:, image, :count] = best[:count], numbers[:count]
    if node.attr_bool("clip_boxes", True):
        out_boxes = np.clip(out_boxes, 0, 1)
    return out_boxes, out[0], out[1], counts


@shape_fn("CombinedNonMaxSuppression")
def combined_non_max_suppression_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of each image's boxes, scores, and classes, and of the valid counts."""
    batch = dim(args.shapes[0], 0)
    merge_dim(batch, dim(args.shapes[1], 0))
    per_class, total = args.scalar(2), args.scalar(3)
    if args.node.attr_bool("pad_per_class", False):
        classes = dim(args.shapes[1], 2)
        if per_class is None or total is None or classes < 0:
            total = None
        else:
            total = min(total, per_class * classes)
    size = UNKNOWN if total is None else total
    return [(batch, size, 4), (batch, size), (batch, size), (batch,)]


def _best_of_classes(
    boxes: Array, scores: Array, limits: tuple[Array, Array, Array]
) -> tuple[Array, Array, Array]:
    """Select the boxes of one image, with their classes and scores, highest score first."""
    survivors, numbers, best = [boxes[:0, 0]], [np.zeros(0, np.intp)], [scores[:0, 0]]
    for number, of_class in enumerate(scores.T):
        placed = boxes[:, number if boxes.shape[1] > 1 else 0]
        index = suppress(of_class, Boxes(placed).overlap, _limits(of_class, *limits))
        survivors.append(placed[index])
        numbers.append(np.full(len(index), number))
        best.append(of_class[index])
    order = np.argsort(-np.concatenate(best), kind="stable")
    return tuple(np.concatenate(part)[order] for part in (survivors, numbers, best))  # type: ignore[return-value]


def _measured(boxes: Array, scores: Array) -> Boxes:
    if scores.ndim != 1 or boxes.shape != (len(scores), 4):
        message = f"boxes of shape {list(boxes.shape)} for {scores.size} scores"
        raise ValueError(message)
    return Boxes(boxes)


def _limits(
    scores: Array, count: Array, overlap: Array, least: Array, *, bounded: bool = True
) -> SuppressionLimits:
    most, share = scalar(count), float(overlap.reshape(()))
    if most < 0 or (bounded and not 0 <= share <= 1):
        message = f"{most} boxes that overlap by at most {share} cannot be kept"
        raise ValueError(message)
    return SuppressionLimits(min(most, scores.size), share, float(least.reshape(())))


def _filled(node: Node, selection: Array, count: int) -> Array:
    """Pad the selection with zeros to the count, if the node requires it."""
    if not node.attr_bool("pad_to_max_output_size", False):
        return selection
    check_allocation((count,), selection.dtype)
    return np.concatenate([selection, np.zeros(count - len(selection), selection.dtype)])


def _check_boxes(args: ShapeArgs) -> None:
    """Raise an error if boxes, of four edges each, and scores do not match."""
    count, edges = with_rank(args.shapes[0], 2)
    merge_dim(edges, 4)
    merge_dim(count, with_rank(args.shapes[1], 1)[0])


def _padded(args: ShapeArgs) -> int:
    """Return the number of selected boxes: unknown unless they are padded to a known number."""
    padded = args.node.attr_bool("pad_to_max_output_size", False)
    most = args.scalar(2) if padded else None
    return UNKNOWN if most is None else most


# Operations for comparing two boxes.
_COST = 1 << 11
_WHAT = "comparing the boxes"

Overlap = Callable[[int], Array]
"""Returns the overlap of every box with the one of an index."""


class SuppressionLimits(Struct, frozen=True):
    """Limits of the selection.

    Args:
        count: maximum number of boxes.
        overlap: boxes that overlap a selected one by more than this are dropped.
        score: only boxes with a higher score are selected.
    """

    count: int
    overlap: float
    score: float


class Boxes:
    """Boxes with precomputed areas.

    Args:
        corners: [count, 4], two opposite corners of each as y, x, y, x.
    """

    def __init__(self, corners: Array) -> None:
        pairs = corners.reshape(-1, 2, 2)
        self._low, self._high = pairs.min(axis=1), pairs.max(axis=1)
        self._area = np.multiply.reduce(self._high - self._low, axis=1)

    def overlap(self, index: int) -> Array:
        """Return the intersection over union of each box with one, 0 for boxes without area."""
        shared = np.minimum(self._high, self._high[index])
        shared -= np.maximum(self._low, self._low[index])
        inner = np.multiply.reduce(np.maximum(shared, 0), axis=-1)
        union = self._area + self._area[index] - inner
        real = (self._area > 0) & (self._area[index] > 0)
        out: Array = np.divide(inner, union, out=np.zeros_like(inner), where=real)
        return out


def suppress(scores: Array, overlap: Overlap, limits: SuppressionLimits) -> Array:
    """Return the indices of the selected boxes, int32, by descending score, then by index.

    Source: ``NonMaxSuppressionOp`` of TensorFlow.
    """
    candidates = np.flatnonzero(scores > limits.score)
    order = candidates[np.argsort(-scores[candidates], kind="stable")]
    free = np.ones(len(scores), dtype=bool)
    indices: list[int] = []
    for index in order.tolist():
        if len(indices) >= limits.count:
            break
        if free[index]:
            indices.append(index)
            spend(_COST * len(scores) + STEP, _WHAT)
            free &= ~(overlap(index) > limits.overlap)
    return np.array(indices, dtype=np.int32)


def suppress_softly(
    scores: Array, overlap: Overlap, limits: SuppressionLimits, sigma: float
) -> tuple[Array, Array]:
    """Select boxes, reducing the scores of those that overlap selected ones.

    Returns:
        The selected indices, int32, and their reduced scores.

    Source: Bodla et al., "Soft-NMS" (2017), as implemented in TensorFlow.
    """
    number = scores.dtype.type
    scale = number(-0.5) / number(sigma)
    factors: list[Array] = []
    indices: list[int] = []
    lowered: list[np.generic] = []
    heap = [(-float(s), i, 0) for i, s in enumerate(scores) if s > limits.score]
    heapq.heapify(heap)
    while heap and len(indices) < limits.count:
        score, index, seen = heapq.heappop(heap)
        before = after = number(-score)
        spend(STEP * max(len(indices) - seen, 1), _WHAT)
        for place in range(len(indices) - 1, seen - 1, -1):
            after *= factors[place][index]
            if after <= limits.score:
                break
        if after == before:
            spend(_COST * len(scores) + STEP, _WHAT)
            check_kept(scores.nbytes, _WHAT)
            indices.append(index)
            lowered.append(after)
            share = overlap(index)
            factors.append(np.exp(scale * share * share))
        elif after > limits.score:
            heapq.heappush(heap, (-float(after), index, len(indices)))
    return np.array(indices, dtype=np.int32), np.array(lowered, dtype=scores.dtype)
