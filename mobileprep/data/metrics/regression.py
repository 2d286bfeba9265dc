"""Regression metrics, and the agreement between two models' outputs."""

from __future__ import annotations

import math
from typing import Final, Literal, TypeAlias

import numpy as np

from mobileprep.data.metrics.base import (
    LabelError,
    MeanMetric,
    Metric,
    MetricBatch,
    MetricOptions,
    OutputError,
    numbers_of,
)
from mobileprep.errors import AccuracyError
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.differences import is_counted, largest_difference, peak
from mobileprep.ops.numerics.texts import class_count

_BEST_PSNR: Final = 100.0


class MeanError(MeanMetric):
    """The mean absolute or squared difference over all elements.

    Args:
        power: 1 for absolute, 2 for squared.
    """

    def __init__(self, power: int) -> None:
        super().__init__()
        self._power = power

    def update(self, batch: MetricBatch) -> None:
        """Add a batch; labels have the shape of the output."""
        outputs, labels = numbers_of(batch), wanted_numbers(batch)
        self._sum += float((np.abs(outputs - labels) ** self._power).sum())
        self._count += outputs.size


class R2(Metric):
    """The coefficient of determination, averaged over the elements of a sample.

    Same as ``sklearn.metrics.r2_score`` with ``uniform_average``: an element whose labels are all
    equal scores 1 if all outputs are exact, else 0. Squares are accumulated around a running mean
    (Chan, Golub, and LeVeque, 1979), so large means do not lose precision.
    """

    def __init__(self) -> None:
        self._count = 0
        self._mean: Array = np.zeros(0)
        self._spread: Array = np.zeros(0)
        self._missed: Array = np.zeros(0)

    def update(self, batch: MetricBatch) -> None:
        """Add a batch; labels have the shape of the output, the same in each batch."""
        outputs, labels = numbers_of(batch), wanted_numbers(batch)
        if not self._count:
            self._mean, self._spread, self._missed = np.zeros((3, labels.shape[1]))
        elif labels.shape[1] != len(self._mean):
            message = f"the labels {batch.labels_name!r} change their shape from batch to batch"
            raise LabelError(message, "r2 needs as many numbers for each sample")
        count, mean = len(labels), labels.mean(axis=0)
        total, gap = self._count + count, mean - self._mean
        self._spread = (
            self._spread
            + ((labels - mean) ** 2).sum(axis=0)
            + gap**2 * (self._count * count / total)
        )
        self._mean = self._mean + gap * (count / total)
        self._missed = self._missed + ((labels - outputs) ** 2).sum(axis=0)
        self._count = total

    def value(self) -> float:
        """Return the coefficient, 1 at best."""
        if self._count < 2:
            message = "r2 needs at least two samples"
            raise AccuracyError(message, "validate on more samples")
        level = self._spread == 0
        shares = self._missed / np.where(level, 1.0, self._spread)
        shares[level] = self._missed[level] != 0
        return float(np.mean(1 - shares))

    def notes(self) -> tuple[str, ...]:
        level = int(np.count_nonzero(self._spread == 0))
        if not level:
            return ()
        return (f"the labels of {level} of {len(self._spread)} elements never change",)


class Psnr(MeanMetric):
    """The peak signal-to-noise ratio in decibels, averaged over the samples.

    Each sample contributes 10 log10(peak^2 / mean squared error), as in ``tf.image.psnr``. Values
    are capped at 100, which is also the value of an exact match.

    Args:
        options: ``peak``; defaults to the maximum of the labels' integer type.
    """

    def __init__(self, options: MetricOptions) -> None:
        super().__init__()
        self._peak = options.peak

    def update(self, batch: MetricBatch) -> None:
        """Add a batch; labels have the shape of the output."""
        outputs, labels = numbers_of(batch), wanted_numbers(batch)
        peak = self._peak_of(batch)
        errors = ((outputs - labels) ** 2).mean(axis=1)
        least = peak**2 / 10 ** (_BEST_PSNR / 10)
        self._sum += float((10 * np.log10(peak**2 / np.maximum(errors, least))).sum())
        self._count += batch.count

    def _peak_of(self, batch: MetricBatch) -> float:
        kind = batch.needed_labels().dtype
        if self._peak is not None:
            return self._peak
        if kind.kind in "iu":
            return float(np.iinfo(kind).max)
        message = f"psnr needs the largest value of an element, and {kind} does not have it"
        raise LabelError(message, "add 'peak: 1' for values from 0 to 1, or 'peak: 255'")


class Cosine(MeanMetric):
    """The cosine of the angle between a sample's output and its label, averaged over the samples.

    An output of zeros has no direction and counts as 0.
    """

    def update(self, batch: MetricBatch) -> None:
        """Add a batch; labels have the shape of the output."""
        outputs, labels = numbers_of(batch), wanted_numbers(batch)
        lengths = np.linalg.norm(labels, axis=1)
        without = np.flatnonzero(lengths == 0)
        if len(without):
            message = (
                f"the label {batch.labels_name!r} of sample {batch.first + int(without[0])} is "
                "zero throughout: it has no direction"
            )
            raise LabelError(message, "leave such samples out, or take another metric")
        lengths *= np.linalg.norm(outputs, axis=1)
        products = (outputs * labels).sum(axis=1)
        self._sum += float((products / np.where(lengths == 0, 1.0, lengths)).sum())
        self._count += batch.count


def wanted_numbers(batch: MetricBatch) -> Array:
    """Return the labels as finite float64 [samples, elements], matching the metric's output."""
    labels, name = batch.needed_labels(), batch.labels_name
    output = batch.each_sample()
    if _without_ones(labels.shape) != _without_ones(output.shape):
        message = (
            f"the labels {name!r} have the shape {list(labels.shape)}, and the output "
            f"{batch.name!r} has {list(output.shape)}"
        )
        raise LabelError(message, "save the expected output of each sample")
    if labels.dtype.kind not in "biuf":
        message = f"the labels {name!r} are {labels.dtype}, and the metric needs numbers"
        raise LabelError(message, "save the expected output of each sample")
    flat: Array = labels.reshape(batch.count, math.prod(output.shape[1:])).astype(np.float64)
    lost = np.flatnonzero(~np.isfinite(flat).all(axis=1))
    if len(lost):
        message = (
            f"{len(lost)} of {batch.count} labels {name!r} are NaN or infinite, the first of them "
            f"that of sample {batch.first + int(lost[0])}"
        )
        raise LabelError(message, "leave such samples out of the data")
    return flat


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:1], *(size for size in shape[1:] if size != 1))


AgreementKind: TypeAlias = Literal["agreement", "top1_agreement", "peak_agreement"]


class OutputAgreement:
    """Compares an output with the source model's, batch by batch.

    Args:
        name: the name of the output.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._largest = 0.0
        self._peak = 0.0
        self._equal = self._elements = 0
        self._same_best = self._samples = 0
        self._is_ranked = self._is_counted = True
        self._has_other_shapes = False

    def update(
        self, expected: Array, actual: Array, samples: int, *, where: str = "", free: bool = False
    ) -> None:
        """Add a batch of samples.

        Args:
            expected: the source model's output.
            actual: the output to compare.
            samples: the number of samples in the batch.
            where: the location, for messages.
            free: whether shapes may differ, as for decoded strings.
        """
        if free and expected.shape != actual.shape:
            self.pass_over()
            return
        self._largest = max(self._largest, largest_difference(expected, actual, self._name, where))
        self._peak = max(self._peak, peak([expected]))
        self._is_counted &= is_counted(expected)
        self._equal += int(np.count_nonzero(expected == actual))
        self._elements += expected.size
        self._is_ranked &= len(expected.shape) > 1 and len(expected) == samples
        self._is_ranked &= class_count(expected.shape) is not None
        if self._is_ranked:
            best = (array.reshape(samples, -1).argmax(axis=1) for array in (expected, actual))
            self._same_best += int(np.count_nonzero(np.equal(*best)))
            self._samples += samples

    def pass_over(self) -> None:
        """Record that some samples cannot be compared because their shapes differ."""
        self._has_other_shapes = True

    @property
    def largest(self) -> float | None:
        """The largest absolute difference of any element; None if shapes differ.

        Infinite if only one of the two values is NaN or infinite. For strings, the largest share of
        a batch's elements that differ.
        """
        return None if self._has_other_shapes else self._largest

    @property
    def share_of_peak(self) -> float | None:
        """The largest difference divided by the source's largest magnitude; None if shapes differ.

        For labels and counts, the share of elements that differ. If the source's output is all
        zeros, the difference itself.
        """
        if self._has_other_shapes:
            return None
        if self._is_counted and math.isfinite(self._largest):
            return 1 - self._equal / self._elements if self._elements else 0.0
        return self._largest / self._peak if self._peak else self._largest

    def value(self, kind: AgreementKind) -> float:
        """Return the agreement, 1 at best.

        Args:
            kind: ``top1_agreement`` for the share of samples with the same best class,
                ``peak_agreement`` for 1 minus ``share_of_peak``, ``agreement`` for the former if
                the output has one score per class, and the latter otherwise.
        """
        share = self.share_of_peak
        if share is None:
            message = f"the output {self._name!r} has other shapes than the source's"
            raise OutputError(message, "compare strings and detections with another metric")
        has_classes = self._is_ranked and not self._is_counted and self._samples > 0
        if kind == "top1_agreement" and not has_classes:
            message = f"the output {self._name!r} has no score for each class"
            raise OutputError(message, "write 'peak_agreement', or name an output of scores")
        if kind == "peak_agreement" or not has_classes:
            return 1 - share
        return self._same_best / self._samples
