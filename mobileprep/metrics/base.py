"""What a metric is: batches of outputs and labels in, one number out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

import numpy as np

from mobileprep.errors import AccuracyError
from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array

MOST_KEPT: Final = 1 << 30
"""The most bytes that a metric keeps which needs all samples at once."""


class LabelError(AccuracyError):
    """Labels that a metric cannot use; who runs it knows the place."""


class OutputError(AccuracyError):
    """Outputs that a metric cannot use; who runs it knows the place."""


@dataclass(frozen=True)
class MetricOptions:
    """What a metric is told besides its name; each takes note of what concerns it.

    Args:
        peak: of ``psnr``: the largest value that an element may have.
        threshold: of ``mean_iou``: a single score above it is class 1.
        ignore: of ``mean_iou``: the label of elements that do not count.
        characters: of the error rates: the text that each class stands for.
    """

    peak: float | None = None
    threshold: float | None = None
    ignore: int | None = None
    characters: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetricBatch:
    """What a model gave for some samples, and what it should have given.

    Args:
        outputs: the fetched tensors by name.
        chosen: those that the metric is of, in its order.
        count: how many samples.
        labels: an entry for each sample; None where there are none.
        labels_name: what they are called, for messages.
        first: the number of the first sample, for messages.
    """

    outputs: Mapping[str, Array]
    chosen: tuple[str, ...]
    count: int
    labels: Array | None = None
    labels_name: str = "label"
    first: int = 0

    @property
    def name(self) -> str:
        """The output that the metric is of, or the first of them."""
        return self.chosen[0]

    def each_sample(self, name: str = "") -> Array:
        """An output with an entry for each sample.

        Args:
            name: the output; without it, the metric's.

        Raises:
            OutputError: it has none.
        """
        output = self.outputs[name or self.name]
        if output.ndim and len(output) == self.count:
            return output
        shape = list(output.shape)
        message = f"the output {name or self.name!r} has the shape {shape} for {self.count} samples"
        raise OutputError(message, "name an output of the metric that has an entry a sample")

    def needed_labels(self) -> Array:
        """The labels.

        Raises:
            LabelError: there are none.
        """
        if self.labels is None:
            message = "the data has no labels, and the metric needs them"
            raise LabelError(message, "name them: 'labels: ...', or write 'metric: agreement'")
        return self.labels


class Metric(ABC):
    """One number for many samples, which come batch by batch."""

    @abstractmethod
    def update(self, batch: MetricBatch) -> None:
        """Take more samples.

        Raises:
            LabelError: the labels are not what the metric needs.
            OutputError: an output is not.
            AccuracyError: outputs are NaN, or there is more to keep than ``MOST_KEPT`` bytes.
        """

    @abstractmethod
    def value(self) -> float:
        """The metric of all samples that it was given, at least one; always finite.

        Raises:
            AccuracyError: it is not defined for them.
        """

    def notes(self) -> tuple[str, ...]:
        """What makes the value worth less than it seems, once it is asked for."""
        return ()


def numbers_of(batch: MetricBatch) -> Array:
    """The metric's output as finite float64, flattened to [samples, elements].

    Raises:
        OutputError: it holds no numbers.
        AccuracyError: they are NaN or infinite.
    """
    output = batch.each_sample()
    if output.dtype.kind not in "biuf":
        message = f"the output {batch.name!r} is {output.dtype}, and the metric needs numbers"
        raise OutputError(message, "name an output of numbers")
    flat = output.reshape(len(output), -1).astype(np.float64)
    check_numbers(flat, f"values of {batch.name!r}", batch)
    return flat


def check_numbers(array: Array, what: str, batch: MetricBatch, *, infinite: bool = False) -> None:
    """Whether outputs are numbers; that they are not is no fault of the choice of an output.

    Args:
        array: with an entry for each sample.
        what: is it, in words.
        batch: the batch.
        infinite: whether infinity has a meaning, as among scores that are ranked.

    Raises:
        AccuracyError: they are NaN, or infinite where that has no meaning.
    """
    flat = array.reshape(batch.count, -1)
    lost = np.flatnonzero((np.isnan(flat) if infinite else ~np.isfinite(flat)).any(axis=1))
    if len(lost):
        message = (
            f"the {what} of {len(lost)} of {batch.count} samples are "
            f"{'NaN' if infinite else 'NaN or infinite'}, the first of them those of sample "
            f"{batch.first + int(lost[0])}; a metric of them would mean nothing"
        )
        hint = "look for NaN in the data, and for a transform that breaks the model (check: true)"
        raise AccuracyError(message, hint)


class KeptArrays:
    """Arrays that a metric keeps until all samples are there, within ``MOST_KEPT`` bytes."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._bytes = 0

    def add(self, array: Array) -> None:
        """Keep one more.

        Raises:
            AccuracyError: they come to too much.
        """
        self._bytes += array.nbytes
        if self._bytes > MOST_KEPT:
            message = f"the metric needs all outputs at once, and they pass {MOST_KEPT >> 20} MiB"
            raise AccuracyError(message, "validate on fewer samples, or name a smaller output")
        self.arrays.append(array)
