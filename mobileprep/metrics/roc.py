"""The area under the curve of the receiver operating characteristic."""

from __future__ import annotations

import numpy as np

from mobileprep.errors import AccuracyError
from mobileprep.ir.tensor import Array
from mobileprep.metrics.base import (
    KeptArrays,
    LabelError,
    Metric,
    MetricBatch,
    OutputError,
    check_numbers,
)
from mobileprep.metrics.classification import class_labels


class Auc(Metric):
    """The chance that a sample of a class scores higher than one of another; equal ones count half.

    For one score a sample, and for two, it is that of class 1. For more, the mean over the classes,
    each against all others (macro, one against the rest). It is worked out by ranks (Mann and
    Whitney, 1947), which gives the area under the trapezoids exactly.
    """

    def __init__(self) -> None:
        self._scores = KeptArrays()
        self._labels = KeptArrays()
        self._left_out = 0

    def update(self, batch: MetricBatch) -> None:
        """See ``Metric.update``.

        Labels are the numbers of classes, or 0 and 1 for each score of a sample.
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
        """See ``Metric.value``: 0 to 1, and 0.5 by chance."""
        scores, labels = map(np.concatenate, (self._scores.arrays, self._labels.arrays))
        found = [_area(s, w) for s, w in zip(scores.T, labels.T, strict=True)]
        areas = [area for area in found if area is not None]
        self._left_out = len(found) - len(areas)
        if not areas:
            message = "auc needs samples of a class and samples of another; the labels have one"
            raise AccuracyError(message, "validate on more samples")
        return float(np.mean(areas))

    def notes(self) -> tuple[str, ...]:
        """See ``Metric.notes``."""
        if not self._left_out:
            return ()
        return (f"auc leaves out {self._left_out} classes that no sample, or each, belongs to",)


def _positive(scores: Array) -> Array:
    """The scores as [samples, curves]; of two classes that of the second, less the first's."""
    if scores.shape[1] != 2:
        return scores
    # The order is the same for probabilities and for logits.
    return (scores[:, 1].astype(np.float64) - scores[:, 0])[:, None]


def _memberships(batch: MetricBatch, scores: int) -> Array:
    """Whether each sample belongs to each curve's class: bool [samples, curves]."""
    labels = batch.needed_labels()
    if scores > 2 and labels.shape == (batch.count, scores):
        if labels.dtype.kind not in "biuf" or not np.isin(labels, (0, 1)).all():
            message = f"the labels {batch.labels_name!r} are neither classes nor 0 and 1 for each"
            raise LabelError(message, "save the number of each class, or 0 and 1 for every class")
        given: Array = labels == 1
        return given
    chosen = class_labels(batch, max(scores, 2))[:, None]
    belongs: Array = chosen == (np.arange(scores) if scores > 2 else 1)
    return belongs


def _area(scores: Array, wanted: Array) -> float | None:
    """One curve's area; None where all samples are of one kind."""
    positives = int(np.count_nonzero(wanted))
    negatives = len(wanted) - positives
    if not positives or not negatives:
        return None
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    above = ranks[wanted].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))
