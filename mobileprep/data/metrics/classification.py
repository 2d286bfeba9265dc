"""Classification metrics: top-k accuracy, AUC, and mean IoU."""

from __future__ import annotations

from typing import Final

import numpy as np

from mobileprep.data.metrics.base import (
    KeptArrays,
    LabelError,
    MeanMetric,
    Metric,
    MetricBatch,
    MetricOptions,
    OutputError,
    check_numbers,
)
from mobileprep.errors import AccuracyError
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.texts import (
    class_count,
    counts_fault,
    labels_fault,
    no_scores,
    range_fault,
)


class TopK(MeanMetric):
    """The share of samples whose label has one of the k largest scores.

    Ties are resolved in favor of the lower class, as in ``argmax``.

    Args:
        k: the number of scores to consider.
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        self._k = k
        self.classes: int | None = None
        """Number of classes; None before the first batch."""

    def update(self, batch: MetricBatch) -> None:
        """Add a batch with one score per class and integer labels starting at 0."""
        scores = class_scores(batch)
        classes = self.classes = scores.shape[1]
        if classes <= self._k:
            message = f"top{self._k} of {classes} classes is always 1"
            raise OutputError(message, f"write a number below {classes}")
        labels = class_labels(batch, classes)
        right = np.take_along_axis(scores, labels[:, None], axis=1)
        earlier = np.arange(classes) < labels[:, None]
        better = (scores > right) | ((scores == right) & earlier)
        self._sum += int(np.count_nonzero(better.sum(axis=1) < self._k))
        self._count += batch.count


def class_scores(batch: MetricBatch) -> Array:
    """Return the metric's output as [samples, classes]."""
    output = batch.each_sample()
    if class_count(output.shape) is None or output.dtype.kind not in "iuf":
        raise OutputError(*no_scores(f"{output.dtype} of shape {list(output.shape)}"))
    scores: Array = output.reshape(len(output), -1)
    check_numbers(scores, "scores", batch, infinite=True)
    return scores


def class_labels(batch: MetricBatch, classes: int) -> Array:
    """Return the labels as int64 [samples]."""
    labels, name = batch.needed_labels(), batch.labels_name
    fault = labels_fault(labels, name, batch.count)
    fault = fault or counts_fault(labels.size, {batch.name: batch.count})
    fault = fault or range_fault(labels, name, classes, first=batch.first)
    if fault is not None:
        raise LabelError(*fault)
    return labels.reshape(-1).astype(np.int64)


class Auc(Metric):
    """The probability that a sample of a class scores higher than one of another; ties count half.

    With one or two scores per sample, this is the AUC of class 1. With more, it is the mean over
    the classes, each against all others (macro average, one-vs-rest). Computed from ranks (Mann and
    Whitney, 1947), which yields the exact area under the trapezoids.
    """

    def __init__(self) -> None:
        self._scores = KeptArrays()
        self._labels = KeptArrays()
        self._left_out = 0

    def update(self, batch: MetricBatch) -> None:
        """Add a batch.

        Labels are class numbers, or 0 or 1 for each score of a sample.
        """
        output = batch.each_sample()
        sizes = [size for size in output.shape[1:] if size != 1]
        if len(sizes) > 1 or 0 in sizes or output.dtype.kind not in "iuf":
            message = f"auc needs one score a class, and {batch.name!r} is {list(output.shape)}"
            raise OutputError(message, "name an output of scores")
        scores = output.reshape(batch.count, -1)
        check_numbers(scores, "scores", batch, infinite=True)
        self._scores.add(_positive(scores))
        self._labels.add(_memberships(batch, scores.shape[1]))

    def value(self) -> float:
        """Return the area, from 0 to 1; 0.5 for random scores."""
        scores, labels = map(np.concatenate, (self._scores.arrays, self._labels.arrays))
        curves = [_area(s, w) for s, w in zip(scores.T, labels.T, strict=True)]
        areas = [area for area in curves if area is not None]
        self._left_out = len(curves) - len(areas)
        if not areas:
            message = "auc needs samples of a class and samples of another; the labels have one"
            raise AccuracyError(message, "validate on more samples")
        return float(np.mean(areas))

    def notes(self) -> tuple[str, ...]:
        if not self._left_out:
            return ()
        return (f"auc leaves out {self._left_out} classes that no sample, or each, belongs to",)


def _positive(scores: Array) -> Array:
    """Return the scores as [samples, curves]; for two classes, the second minus the first."""
    if scores.shape[1] != 2:
        return scores
    # The difference orders samples the same way for probabilities and for logits.
    return (scores[:, 1].astype(np.float64) - scores[:, 0])[:, None]


def _memberships(batch: MetricBatch, scores: int) -> Array:
    """Return whether each sample belongs to each curve's class: bool [samples, curves]."""
    labels = batch.needed_labels()
    if scores > 2 and labels.shape == (batch.count, scores):
        if labels.dtype.kind not in "biuf" or not np.isin(labels, (0, 1)).all():
            message = f"the labels {batch.labels_name!r} are neither classes nor 0 and 1 for each"
            raise LabelError(message, "save the number of each class, or 0 and 1 for every class")
        members: Array = labels == 1
        return members
    chosen = class_labels(batch, max(scores, 2))[:, None]
    belongs: Array = chosen == (np.arange(scores) if scores > 2 else 1)
    return belongs


def _area(scores: Array, is_positive: Array) -> float | None:
    """Return the area under one curve, or None if all samples are positive or all are negative."""
    positives = int(np.count_nonzero(is_positive))
    negatives = len(is_positive) - positives
    if not positives or not negatives:
        return None
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    above = ranks[is_positive].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


# Maximum length of the arrays that count classes.
_MOST_CLASSES: Final = 1 << 16


class MeanIoU(Metric):
    """The intersection over union of each class, averaged over the classes.

    Classes that occur in neither labels nor outputs are skipped, as in
    ``tf.keras.metrics.MeanIoU``. Elements are counted over all samples.

    Args:
        options: ``threshold`` and ``ignore``.
    """

    def __init__(self, options: MetricOptions) -> None:
        self._options = options
        # For each class: number of elements in the intersection, in the labels, in the outputs.
        self._counts = np.zeros((3, 0), np.int64)

    def update(self, batch: MetricBatch) -> None:
        """Add a batch.

        Labels are integers starting at 0. The output has one score per class on its last axis (the
        largest wins), or integers, or with ``threshold`` one score per element.
        """
        labels = batch.needed_labels()
        if labels.dtype.kind not in "biu":
            message = f"the labels {batch.labels_name!r} are {labels.dtype}, no numbers of classes"
            raise LabelError(message, "save masks as whole numbers from 0 on")
        predicted, classes = self._classes_of(batch, labels)
        expected = labels.reshape(-1).astype(np.int64)
        if self._options.ignore is not None:
            counted = expected != self._options.ignore
            expected, predicted = expected[counted], predicted[counted]
        _check_range(expected, batch, classes)
        most = 1 + max(int(predicted.max(initial=0)), int(expected.max(initial=0)))
        counts = (predicted[predicted == expected], expected, predicted)
        fresh = np.stack([np.bincount(which, minlength=most) for which in counts])
        grown = np.zeros((3, max(most, self._counts.shape[1])), np.int64)
        grown[:, : self._counts.shape[1]] = self._counts
        grown[:, :most] += fresh
        self._counts = grown

    def value(self) -> float:
        """Return the mean, from 0 to 1."""
        both, expected, predicted = self._counts
        union = expected + predicted - both
        there = union > 0
        if not there.any():
            message = f"no element has another label than {self._options.ignore}, which is ignored"
            raise AccuracyError(message, "validate on samples with labels")
        return float(np.mean(both[there] / union[there]))

    def _classes_of(self, batch: MetricBatch, labels: Array) -> tuple[Array, int]:
        """Return the classes of all elements as a flat array, and the maximum number of classes."""
        output = batch.each_sample()
        sizes = tuple(size for size in labels.shape[1:] if size != 1)
        has = tuple(size for size in output.shape[1:] if size != 1)
        if self._options.threshold is not None:
            if has != sizes or output.dtype.kind != "f":
                raise _unlike(batch, output, labels, "a score for each element of the labels")
            return (_scores(batch) > self._options.threshold).reshape(-1).astype(np.int64), 2
        if has[:-1] == sizes and len(has) == len(sizes) + 1 and output.dtype.kind in "iuf":
            scores = _scores(batch).reshape(-1, has[-1])
            return scores.argmax(axis=1), has[-1]
        if has != sizes or output.dtype.kind not in "biu":
            expected = "whole numbers in the shape of the labels, or a last axis of scores more"
            raise _unlike(batch, output, labels, expected)
        whole = output.reshape(-1).astype(np.int64)
        if whole.size and not 0 <= whole.min() <= whole.max() < _MOST_CLASSES:
            message = f"the output {batch.name!r} has the class {_outside(whole)}"
            raise OutputError(message, f"classes are 0 to {_MOST_CLASSES - 1}")
        return whole, _MOST_CLASSES


def _scores(batch: MetricBatch) -> Array:
    output = batch.each_sample()
    check_numbers(output, "scores", batch, infinite=True)
    return output


def _check_range(values: Array, batch: MetricBatch, classes: int) -> None:
    if values.size and not 0 <= values.min() <= values.max() < classes:
        message = (
            f"the labels {batch.labels_name!r} have the class {_outside(values, classes)}, and "
            f"there are 0 to {classes - 1}"
        )
        raise LabelError(message, "add 'ignore: 255' for elements that do not count")


def _outside(whole: Array, classes: int = _MOST_CLASSES) -> int:
    return int(whole[(whole < 0) | (whole >= classes)][0])


def _unlike(batch: MetricBatch, output: Array, labels: Array, expected: str) -> OutputError:
    message = (
        f"the output {batch.name!r} is {output.dtype} of shape {list(output.shape)} and the labels "
        f"have {list(labels.shape)}: mean_iou needs {expected}"
    )
    hint = "name the output of the mask; 'threshold: 0.5' reads a single score as class 1 above it"
    return OutputError(message, hint)
