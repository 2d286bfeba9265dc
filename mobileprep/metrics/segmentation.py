"""How well masks of classes cover those that they should."""

from __future__ import annotations

from typing import Final

import numpy as np

from mobileprep.errors import AccuracyError
from mobileprep.ir.tensor import Array
from mobileprep.metrics.base import (
    LabelError,
    Metric,
    MetricBatch,
    MetricOptions,
    OutputError,
    check_numbers,
)

# Classes are counted in arrays of this length at most.
_MOST_CLASSES: Final = 1 << 16


class MeanIoU(Metric):
    """The intersection over the union of each class' elements, the mean over the classes.

    Classes that neither labels nor outputs have anywhere are left out, as in
    ``tf.keras.metrics.MeanIoU``. Elements are counted over all samples.

    Args:
        options: ``threshold`` and ``ignore``.
    """

    def __init__(self, options: MetricOptions) -> None:
        self._options = options
        # Of each class: elements that both have, that labels have, that outputs have.
        self._counts = np.zeros((3, 0), np.int64)

    def update(self, batch: MetricBatch) -> None:
        """See ``Metric.update``.

        Labels are whole numbers from 0 on. The output has a score for each class on its last axis
        (the largest counts), or whole numbers, or with ``threshold`` one score for each element.
        """
        labels = batch.needed_labels()
        if labels.dtype.kind not in "biu":
            message = f"the labels {batch.labels_name!r} are {labels.dtype}, no numbers of classes"
            raise LabelError(message, "save masks as whole numbers from 0 on")
        found, classes = self._found(batch, labels)
        wanted = labels.reshape(-1).astype(np.int64)
        if self._options.ignore is not None:
            counted = wanted != self._options.ignore
            wanted, found = wanted[counted], found[counted]
        _check_range(wanted, batch, classes)
        most = 1 + max(int(found.max(initial=0)), int(wanted.max(initial=0)))
        counts = (found[found == wanted], wanted, found)
        fresh = np.stack([np.bincount(which, minlength=most) for which in counts])
        grown = np.zeros((3, max(most, self._counts.shape[1])), np.int64)
        grown[:, : self._counts.shape[1]] = self._counts
        grown[:, :most] += fresh
        self._counts = grown

    def value(self) -> float:
        """See ``Metric.value``: 0 to 1."""
        both, wanted, found = self._counts
        union = wanted + found - both
        there = union > 0
        if not there.any():
            message = f"no element has another label than {self._options.ignore}, which is ignored"
            raise AccuracyError(message, "validate on samples with labels")
        return float(np.mean(both[there] / union[there]))

    def _found(self, batch: MetricBatch, labels: Array) -> tuple[Array, int]:
        """The classes of all elements in a row, and how many classes there are at most."""
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
            wanted = "whole numbers in the shape of the labels, or a last axis of scores more"
            raise _unlike(batch, output, labels, wanted)
        whole = output.reshape(-1).astype(np.int64)
        if whole.size and not 0 <= whole.min() <= whole.max() < _MOST_CLASSES:
            message = f"the output {batch.name!r} has the class {_outside(whole)}"
            raise OutputError(message, f"classes are 0 to {_MOST_CLASSES - 1}")
        return whole, _MOST_CLASSES


def _scores(batch: MetricBatch) -> Array:
    output = batch.each_sample()
    check_numbers(output, "scores", batch, infinite=True)
    return output


def _check_range(wanted: Array, batch: MetricBatch, classes: int) -> None:
    if wanted.size and not 0 <= wanted.min() <= wanted.max() < classes:
        message = (
            f"the labels {batch.labels_name!r} have the class {_outside(wanted, classes)}, and "
            f"there are 0 to {classes - 1}"
        )
        raise LabelError(message, "add 'ignore: 255' for elements that do not count")


def _outside(whole: Array, classes: int = _MOST_CLASSES) -> int:
    return int(whole[(whole < 0) | (whole >= classes)][0])


def _unlike(batch: MetricBatch, output: Array, labels: Array, wanted: str) -> OutputError:
    message = (
        f"the output {batch.name!r} is {output.dtype} of shape {list(output.shape)} and the labels "
        f"have {list(labels.shape)}: mean_iou needs {wanted}"
    )
    hint = "name the output of the mask; 'threshold: 0.5' reads a single score as class 1 above it"
    return OutputError(message, hint)
