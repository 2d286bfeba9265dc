"""The share of samples whose label is among the best scores."""

from __future__ import annotations

import numpy as np

from mobileprep.ir.tensor import Array
from mobileprep.metrics.base import LabelError, Metric, MetricBatch, OutputError, check_numbers
from mobileprep.numerics.texts import (
    class_count,
    counts_fault,
    labels_fault,
    no_scores,
    range_fault,
)


class TopK(Metric):
    """The share of samples whose label has one of the k largest scores.

    Of equal scores the one of the lower class counts as larger, as ``argmax`` has it.

    Args:
        k: how many scores.
    """

    def __init__(self, k: int) -> None:
        self._k = k
        self._hits = 0
        self._samples = 0
        self.classes: int | None = None
        """How many there are to choose from, once a batch was seen."""

    def update(self, batch: MetricBatch) -> None:
        """See ``Metric.update``; a score for each class, and whole numbers from 0 on."""
        scores = class_scores(batch)
        classes = self.classes = scores.shape[1]
        if classes <= self._k:
            message = f"top{self._k} of {classes} classes is always 1"
            raise OutputError(message, f"write a number below {classes}")
        labels = class_labels(batch, classes)
        right = np.take_along_axis(scores, labels[:, None], axis=1)
        earlier = np.arange(classes) < labels[:, None]
        better = (scores > right) | ((scores == right) & earlier)
        self._hits += int(np.count_nonzero(better.sum(axis=1) < self._k))
        self._samples += batch.count

    def value(self) -> float:
        """See ``Metric.value``: 0 to 1."""
        return self._hits / self._samples


def class_scores(batch: MetricBatch) -> Array:
    """The metric's output as [samples, classes].

    Raises:
        OutputError: it is no score for each class.
        AccuracyError: there is NaN among them.
    """
    output = batch.each_sample()
    if class_count(output.shape) is None or output.dtype.kind not in "iuf":
        raise OutputError(*no_scores(f"{output.dtype} of shape {list(output.shape)}"))
    scores: Array = output.reshape(len(output), -1)
    check_numbers(scores, "scores", batch, infinite=True)
    return scores


def class_labels(batch: MetricBatch, classes: int) -> Array:
    """The labels as int64 [samples].

    Raises:
        LabelError: they are not the numbers of classes, one a sample.
    """
    labels, name = batch.needed_labels(), batch.labels_name
    fault = labels_fault(labels, name, batch.count)
    fault = fault or counts_fault(labels.size, {batch.name: batch.count})
    fault = fault or range_fault(labels, name, classes, first=batch.first)
    if fault is not None:
        raise LabelError(*fault)
    return labels.reshape(-1).astype(np.int64)
