"""Methods that turn observed values into ranges."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

HISTOGRAM_METHODS: Final = frozenset({"percentile", "entropy", "mse"})


MOVING_AVERAGE: Final = "moving_average"


class Method(Struct, frozen=True):
    """A method of calibration.

    Args:
        name: ``min_max``, ``moving_average``, ``percentile``, ``entropy`` or ``mse``.
        percentile: how many percent of the values ``percentile`` keeps.
        decay: the weight that ``moving_average`` leaves to the batches before.
    """

    name: str
    percentile: float
    decay: float

    @property
    def has_histogram(self) -> bool:
        """Whether it looks at more than the ends."""
        return self.name in HISTOGRAM_METHODS

    def __str__(self) -> str:
        """As range files have it."""
        if self.name == "percentile":
            return f"{self.name} {self.percentile:g}"
        return f"{self.name} {self.decay:g}" if self.name == MOVING_AVERAGE else self.name
