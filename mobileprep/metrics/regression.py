"""How near numbers are to those that they should be."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from mobileprep.errors import AccuracyError
from mobileprep.ir.tensor import Array
from mobileprep.metrics.base import LabelError, Metric, MetricBatch, MetricOptions, numbers_of

_BEST_PSNR: Final = 100.0


class MeanError(Metric):
    """The mean of the absolute or squared differences of all elements.

    Args:
        power: 1 for absolute, 2 for squared.
    """

    def __init__(self, power: int) -> None:
        self._power = power
        self._sum = 0.0
        self._count = 0

    def update(self, batch: MetricBatch) -> None:
        """See ``Metric.update``; labels have the output's shape."""
        found, wanted = numbers_of(batch), wanted_numbers(batch)
        self._sum += float((np.abs(found - wanted) ** self._power).sum())
        self._count += found.size

    def value(self) -> float:
        """See ``Metric.value``: 0 or more, in the output's unit or its square."""
        return self._sum / self._count


class R2(Metric):
    """The coefficient of determination, the mean over the elements of a sample.

    As ``sklearn.metrics.r2_score`` has it (``uniform_average``): an element whose labels are all
    equal counts 1 where it is met exactly, else 0. Squares are summed about a mean that moves with
    the batches (Chan, Golub and LeVeque, 1979), so that large means cost no digits.
    """

    def __init__(self) -> None:
        self._count = 0
        self._mean: Array = np.zeros(0)
        self._spread: Array = np.zeros(0)
        self._missed: Array = np.zeros(0)

    def update(self, batch: MetricBatch) -> None:
        """See ``Metric.update``; labels have the output's shape, the same in each batch."""
        found, wanted = numbers_of(batch), wanted_numbers(batch)
        if not self._count:
            self._mean, self._spread, self._missed = np.zeros((3, wanted.shape[1]))
        elif wanted.shape[1] != len(self._mean):
            message = f"the labels {batch.labels_name!r} change their shape from batch to batch"
            raise LabelError(message, "r2 needs as many numbers for each sample")
        count, mean = len(wanted), wanted.mean(axis=0)
        total, gap = self._count + count, mean - self._mean
        self._spread = (
            self._spread
            + ((wanted - mean) ** 2).sum(axis=0)
            + gap**2 * (self._count * count / total)
        )
        self._mean = self._mean + gap * (count / total)
        self._missed = self._missed + ((wanted - found) ** 2).sum(axis=0)
        self._count = total

    def value(self) -> float:
        """See ``Metric.value``: 1 at best."""
        if self._count < 2:
            message = "r2 needs at least two samples"
            raise AccuracyError(message, "validate on more samples")
        level = self._spread == 0
        shares = self._missed / np.where(level, 1.0, self._spread)
        shares[level] = self._missed[level] != 0
        return float(np.mean(1 - shares))

    def notes(self) -> tuple[str, ...]:
        """See ``Metric.notes``."""
        level = int(np.count_nonzero(self._spread == 0))
        if not level:
            return ()
        return (f"the labels of {level} of {len(self._spread)} elements never change",)


class Psnr(Metric):
    """The peak signal-to-noise ratio in decibels, the mean over the samples.

    Each sample's is 10 log10(peak^2 / mean squared error), as ``tf.image.psnr`` has it. One that is
    met exactly has none; it and all above count 100.

    Args:
        options: ``peak``; without it, the largest number that the labels' type can hold.
    """

    def __init__(self, options: MetricOptions) -> None:
        self._peak = options.peak
        self._sum = 0.0
        self._samples = 0

    def update(self, batch: MetricBatch) -> None:
        """See ``Metric.update``; labels have the output's shape."""
        found, wanted = numbers_of(batch), wanted_numbers(batch)
        peak = self._peak_of(batch)
        errors = ((found - wanted) ** 2).mean(axis=1)
        least = peak**2 / 10 ** (_BEST_PSNR / 10)
        self._sum += float((10 * np.log10(peak**2 / np.maximum(errors, least))).sum())
        self._samples += batch.count

    def value(self) -> float:
        """See ``Metric.value``: decibels."""
        return self._sum / self._samples

    def _peak_of(self, batch: MetricBatch) -> float:
        kind = batch.needed_labels().dtype
        if self._peak is not None:
            return self._peak
        if kind.kind in "iu":
            return float(np.iinfo(kind).max)
        message = f"psnr needs the largest value of an element, and {kind} does not tell it"
        raise LabelError(message, "add 'peak: 1' for values from 0 to 1, or 'peak: 255'")


class Cosine(Metric):
    """The cosine of the angle between a sample's output and its label, the mean over the samples.

    An output that is zero throughout has no direction, and counts 0.
    """

    def __init__(self) -> None:
        self._sum = 0.0
        self._samples = 0

    def update(self, batch: MetricBatch) -> None:
        """See ``Metric.update``; labels have the output's shape."""
        found, wanted = numbers_of(batch), wanted_numbers(batch)
        lengths = np.linalg.norm(wanted, axis=1)
        without = np.flatnonzero(lengths == 0)
        if len(without):
            message = (
                f"the label {batch.labels_name!r} of sample {batch.first + int(without[0])} is "
                "zero throughout: it has no direction"
            )
            raise LabelError(message, "leave such samples out, or take another metric")
        lengths *= np.linalg.norm(found, axis=1)
        products = (found * wanted).sum(axis=1)
        self._sum += float((products / np.where(lengths == 0, 1.0, lengths)).sum())
        self._samples += batch.count

    def value(self) -> float:
        """See ``Metric.value``: -1 to 1."""
        return self._sum / self._samples


def wanted_numbers(batch: MetricBatch) -> Array:
    """The labels as finite float64 [samples, elements], which the metric's output has too.

    Raises:
        LabelError: they have another shape, are no numbers, or NaN or infinite.
    """
    labels, name = batch.needed_labels(), batch.labels_name
    output = batch.each_sample()
    if _without_ones(labels.shape) != _without_ones(output.shape):
        message = (
            f"the labels {name!r} have the shape {list(labels.shape)}, and the output "
            f"{batch.name!r} has {list(output.shape)}"
        )
        raise LabelError(message, "save for each sample what the output should be")
    if labels.dtype.kind not in "biuf":
        message = f"the labels {name!r} are {labels.dtype}, and the metric needs numbers"
        raise LabelError(message, "save for each sample what the output should be")
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
