"""What is to be known of samples as a whole: whether they differ, and which cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mobileprep.datasets.chosen import left_out
from mobileprep.datasets.dataset import Batch, Unread
from mobileprep.errors import AccuracyError
from mobileprep.ir.tensor import Array

_LEAVE_OUT: Final = "leave them out of the data"


@dataclass
class DataSurvey:
    """Notes on the samples that were read; those on parts of the data add up to those on all.

    Args:
        data: what messages call the data.
        unread: the samples that cannot be read.
        ends: the least and the greatest value of each input. Once they differ they may be wider
            than that tells.
        elements: of the largest batch.
    """

    data: str
    unread: list[Unread] = field(default_factory=list)
    ends: dict[str, tuple[float, float]] = field(default_factory=dict)
    elements: int = 0

    def look(self, batch: Batch) -> None:
        """Take note of samples.

        Raises:
            AccuracyError: one holds no number.
        """
        for name, array in batch.feeds.items():
            if array.dtype.kind not in "iufb":
                self.ends[name] = (0, 1)
                continue
            lost = _all_nan(array)
            if len(lost):
                message = f"{self.data}: {len(lost)} of {len(batch.names)} samples of {name!r} "
                message += f"are NaN throughout, the first of them {batch.names[lost[0]]}"
                raise AccuracyError(message, _LEAVE_OUT)
            self.elements = max(self.elements, array.size)
            low, high = self.ends.get(name, (np.inf, -np.inf))
            # What differs already needs no second look.
            if low >= high and array.size:
                self._widen(name, float(array.min()), float(array.max()))

    def merge(self, other: DataSurvey) -> None:
        """Add the notes on samples that come after these."""
        self.unread += other.unread
        self.elements = max(self.elements, other.elements)
        for name, (low, high) in other.ends.items():
            self._widen(name, low, high)

    def check(self, count: int, warn: Callable[[str], None]) -> None:
        """Tell what is to be told of all ``count`` samples together.

        Raises:
            AccuracyError: none could be read, or every input got one value alone.
        """
        if self.unread:
            warn(left_out(self.data, self.unread, count))
        self.check_spread()

    def check_spread(self) -> None:
        """Make sure that some input has two values.

        Raises:
            AccuracyError: every input got one value alone.
        """
        if self.elements < 2 or any(low != high for low, high in self.ends.values()):
            return
        told = ", ".join(f"{name!r} is {low:g}" for name, (low, _) in self.ends.items())
        message = f"{self.data}: all samples hold one value: {told} throughout"
        raise AccuracyError(message, "name data that differs from sample to sample")

    def _widen(self, name: str, low: float, high: float) -> None:
        least, greatest = self.ends.get(name, (np.inf, -np.inf))
        self.ends[name] = min(least, low), max(greatest, high)


def _all_nan(array: Array) -> Array:
    """The samples that have no number at all."""
    if array.dtype.kind != "f" or not array.size:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.isnan(array.reshape(len(array), -1)).all(axis=1))
