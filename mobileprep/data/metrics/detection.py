"""Mean average precision of detected boxes, as defined by COCO."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.data.metrics.base import LabelError, Metric, MetricBatch, OutputError, check_numbers
from mobileprep.errors import AccuracyError
from mobileprep.graph.tensor import Array

# Computed as in COCOeval, so that they are equal bit for bit.
_OVERLAPS: Final = np.linspace(0.5, 0.95, 10)
_RECALLS: Final = np.linspace(0.0, 1.0, 101)
_MOST_DETECTIONS: Final = 100


class _Image(Struct, frozen=True):
    """Detections of one class in one image, best first, and the true objects of that class."""

    boxes: Array
    scores: Array
    objects: Array
    is_crowd: Array


class MeanAveragePrecision(Metric):
    """The mean of the average precisions of all classes at IoU 0.50, 0.55 ... 0.95.

    COCO's AP (the first number of ``COCOeval``). For each class and image, the 100 best detections
    are matched in order of score, each with the unmatched object of its class that it overlaps
    most. Precision is monotonic from the right and sampled at 101 recalls. A crowd can match any
    number of detections, which are then ignored. Classes without objects are skipped.
    """

    def __init__(self) -> None:
        # By class: scores; matched and ignored flags with one row per overlap; number of objects.
        self._scores: dict[int, list[Array]] = defaultdict(list)
        self._matched: dict[int, list[Array]] = defaultdict(list)
        self._ignored: dict[int, list[Array]] = defaultdict(list)
        self._objects: dict[int, int] = defaultdict(int)

    def update(self, batch: MetricBatch) -> None:
        """Add a batch.

        Outputs: boxes ``[samples, n, 4]`` as two corners, scores and classes ``[samples, n]``, and
        optionally the number of valid detections ``[samples]``. Labels: ``[samples, m, 5]`` with a
        box's corners in the same order and unit and its class, or ``[samples, m, 6]`` with an
        additional 1 for a crowd. Rows with a negative class are padding.
        """
        boxes, scores, classes, counts = _detections(batch)
        labels = _objects(batch)
        for at in range(batch.count):
            objects = labels[at][labels[at][:, 4] >= 0]
            valid = slice(counts[at])
            detections = boxes[at][valid], scores[at][valid], classes[at][valid]
            for which in np.union1d(objects[:, 4], detections[2]):
                self._add(int(which), _of_class(which, *detections, objects))

    def value(self) -> float:
        """Return the mean average precision, from 0 to 1."""
        with_objects = [which for which, count in sorted(self._objects.items()) if count]
        if not with_objects:
            message = "the labels have no object but crowds, so that nothing can be found"
            raise AccuracyError(message, "validate on samples with objects")
        return float(np.mean([self._precisions(which) for which in with_objects]))

    def _add(self, which: int, image: _Image) -> None:
        matched, ignored = _matches(image)
        self._scores[which].append(image.scores)
        self._matched[which].append(matched)
        self._ignored[which].append(ignored)
        self._objects[which] += int(np.count_nonzero(~image.is_crowd))

    def _precisions(self, which: int) -> Array:
        """Return the precision of a class at each overlap and recall."""
        scores = np.concatenate(self._scores[which])
        order = np.argsort(-scores, kind="stable")
        matched = np.concatenate(self._matched[which], axis=1)[:, order]
        counted = ~np.concatenate(self._ignored[which], axis=1)[:, order]
        right = np.cumsum(matched & counted, axis=1).astype(np.float64)
        wrong = np.cumsum(~matched & counted, axis=1).astype(np.float64)
        recalls = right / self._objects[which]
        precisions = right / (right + wrong + np.spacing(1))
        falling = np.maximum.accumulate(precisions[:, ::-1], axis=1)[:, ::-1]
        # No detection reaches a recall beyond the last one, so the precision is 0.
        padded = np.concatenate([falling, np.zeros((len(_OVERLAPS), 1))], axis=1)
        places = [np.searchsorted(recall, _RECALLS, side="left") for recall in recalls]
        return np.stack([row[place] for row, place in zip(padded, places, strict=True)])


def _detections(batch: MetricBatch) -> tuple[Array, Array, Array, Array]:
    """Return boxes, scores, classes, and the number of valid detections per sample."""
    boxes, scores, classes, *more = (batch.each_sample(name) for name in batch.chosen)
    shape = (batch.count, boxes.shape[1] if boxes.ndim == 3 else -1)
    if boxes.shape[2:] != (4,) or not scores.shape == classes.shape == shape:
        shapes = ", ".join(f"{n!r} {list(batch.outputs[n].shape)}" for n in batch.chosen)
        message = f"no boxes, scores and classes of detections: {shapes}"
        hint = "name the outputs in this order: boxes [n, m, 4], scores [n, m], classes [n, m]"
        raise OutputError(message, hint)
    for name, array in zip(batch.chosen, (boxes, scores, classes, *more), strict=True):
        if array.dtype.kind not in "iuf":
            message = f"the output {name!r} is {array.dtype}"
            raise OutputError(message, "name the outputs in this order: boxes, scores, classes")
        check_numbers(array, f"values of {name!r}", batch)
    if (classes != np.floor(classes)).any():
        message = f"the output {batch.chosen[2]!r} has fractions, and classes are whole numbers"
        raise OutputError(message, "name the outputs in this order: boxes, scores, classes")
    counts = np.full(batch.count, shape[1])
    if more:
        if more[0].size != batch.count:
            message = f"the output {batch.chosen[3]!r} is {list(more[0].shape)}, no count a sample"
            raise OutputError(message, "name as fourth output how many detections count")
        counts = more[0].reshape(-1)
    valid = np.clip(counts, 0, shape[1]).astype(np.int64)
    return boxes.astype(np.float64), scores.astype(np.float64), classes, valid


def _objects(batch: MetricBatch) -> Array:
    """Return the labels as float64 [samples, objects, 6]: corners, class, crowd flag."""
    labels, name = batch.needed_labels(), batch.labels_name
    if labels.ndim != 3 or labels.shape[2] not in (5, 6) or labels.dtype.kind not in "iuf":
        message = f"the labels {name!r} are {labels.dtype} of shape {list(labels.shape)}"
        hint = "save [samples, objects, 5]: two corners and the class of each; -1 fills up"
        raise LabelError(message, hint)
    if not np.isfinite(labels).all() or (labels[:, :, 4] != np.floor(labels[:, :, 4])).any():
        message = f"the labels {name!r} have NaN, infinity, or classes that are not integers"
        raise LabelError(message, "fill up with rows whose class is -1")
    full = np.zeros((*labels.shape[:2], 6))
    full[:, :, : labels.shape[2]] = labels
    return full


def _of_class(which: float, boxes: Array, scores: Array, classes: Array, objects: Array) -> _Image:
    chosen = np.flatnonzero(classes == which)
    best = chosen[np.argsort(-scores[chosen], kind="stable")][:_MOST_DETECTIONS]
    there = objects[objects[:, 4] == which]
    # Crowds last: a detection matches a crowd only if no object is available.
    there = there[np.argsort(there[:, 5], kind="stable")]
    return _Image(boxes[best], scores[best], there[:, :4], there[:, 5] != 0)


def _matches(image: _Image) -> tuple[Array, Array]:
    """Return two bool arrays [overlaps, detections]: matched, and matched with a crowd."""
    shape = (len(_OVERLAPS), len(image.scores))
    matched, ignored = np.zeros(shape, bool), np.zeros(shape, bool)
    if not len(image.objects):
        return matched, ignored
    overlaps = _overlaps(image.boxes, image.objects, image.is_crowd)
    for row, least in enumerate(_OVERLAPS):
        is_matched = np.zeros(len(image.objects), bool)
        for column, row_overlaps in enumerate(overlaps):
            at = _match(row_overlaps, least, is_matched, image.is_crowd)
            if at >= 0:
                matched[row, column], ignored[row, column] = True, image.is_crowd[at]
                is_matched[at] = True
    return matched, ignored


def _match(overlaps: Array, least: float, is_matched: Array, is_crowd: Array) -> int:
    """Return the index of the object that matches a detection, or -1; the last one wins ties."""
    for kind in (~is_crowd & ~is_matched, is_crowd):
        candidates = np.flatnonzero(kind & (overlaps >= min(least, 1 - 1e-10)))
        if len(candidates):
            backwards = candidates[::-1]
            return int(backwards[overlaps[backwards].argmax()])
    return -1


def _overlaps(boxes: Array, objects: Array, is_crowd: Array) -> Array:
    """Return the IoU of each pair; for crowds, the intersection over the detection's area."""
    low = np.maximum(boxes[:, None, :2], objects[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], objects[None, :, 2:])
    both = np.maximum(high - low, 0).prod(axis=2)
    of_boxes = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)[:, None]
    of_objects = (objects[:, 2:] - objects[:, :2]).prod(axis=1)[None]
    union = np.where(is_crowd[None], of_boxes, of_boxes + of_objects - both)
    shares: Array = np.divide(both, union, out=np.zeros_like(both), where=union > 0)
    return shares
