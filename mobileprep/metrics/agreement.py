"""How well a model agrees with the one that it was made from, where there are no labels."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np

from mobileprep.ir.tensor import Array
from mobileprep.metrics.base import OutputError
from mobileprep.numerics.differences import is_counted, largest_difference, peak
from mobileprep.numerics.texts import class_count

AgreementKind: TypeAlias = Literal["agreement", "top1_agreement", "peak_agreement"]


class OutputAgreement:
    """How an output compares with the source's, batch by batch.

    Args:
        name: the output.
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
        self, expected: Array, found: Array, samples: int, *, where: str = "", free: bool = False
    ) -> None:
        """Take more samples.

        Args:
            expected: what the source gave.
            found: what the model gave.
            samples: how many they are of.
            where: the place to blame, for messages.
            free: whether shapes may differ, as those of decoded texts do.

        Raises:
            AccuracyError: the shapes differ.
        """
        if free and expected.shape != found.shape:
            self.pass_over()
            return
        self._largest = max(self._largest, largest_difference(expected, found, self._name, where))
        self._peak = max(self._peak, peak([expected]))
        self._is_counted &= is_counted(expected)
        self._equal += int(np.count_nonzero(expected == found))
        self._elements += expected.size
        self._is_ranked &= len(expected.shape) > 1 and len(expected) == samples
        self._is_ranked &= class_count(expected.shape) is not None
        if self._is_ranked:
            best = (array.reshape(samples, -1).argmax(axis=1) for array in (expected, found))
            self._same_best += int(np.count_nonzero(np.equal(*best)))
            self._samples += samples

    def pass_over(self) -> None:
        """Take note of samples for which the two cannot be compared."""
        self._has_other_shapes = True

    @property
    def largest(self) -> float | None:
        """The largest absolute difference of any element; None where shapes differ.

        Infinite where only one of the two is NaN or infinite; for text the largest share of a
        batch's elements that differ.
        """
        return None if self._has_other_shapes else self._largest

    @property
    def share_of_peak(self) -> float | None:
        """The same as a share of the source's largest magnitude; None where shapes differ.

        Of what names or counts, the share of elements that differ. Where the source gives nothing
        but zeros, the difference itself.
        """
        if self._has_other_shapes:
            return None
        if self._is_counted and math.isfinite(self._largest):
            return 1 - self._equal / self._elements if self._elements else 0.0
        return self._largest / self._peak if self._peak else self._largest

    def value(self, kind: AgreementKind) -> float:
        """The agreement, 1 at best.

        Args:
            kind: ``top1_agreement`` for the share of samples with the same best class,
                ``peak_agreement`` for 1 less the share of the peak, ``agreement`` for the first of
                these where there are scores for classes, and the second otherwise.

        Raises:
            OutputError: there is none of that kind.
        """
        share = self.share_of_peak
        if share is None:
            message = f"the output {self._name!r} has other shapes than the source's"
            raise OutputError(message, "compare texts and detections by a metric of their own")
        has_classes = self._is_ranked and not self._is_counted and self._samples > 0
        if kind == "top1_agreement" and not has_classes:
            message = f"the output {self._name!r} has no score for each class"
            raise OutputError(message, "write 'peak_agreement', or name an output of scores")
        if kind == "peak_agreement" or not has_classes:
            return 1 - share
        return self._same_best / self._samples
