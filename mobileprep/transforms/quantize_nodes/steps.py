"""Equal steps of floats, of which zero is one: what eight-bit numbers stand for."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from mobileprep.graph.tensor import Array

LEVELS = 256


class EvenSteps(Struct, frozen=True):
    """What the integers 0 to 255 stand for: ``(integer - zero) * size``.

    Args:
        size: the distance between two of the floats, above zero.
        zero: the integer that stands for 0.0, from 0 to 255.
    """

    size: float
    zero: int

    @classmethod
    def over(cls, low: float, high: float) -> EvenSteps:
        """The 256 steps over a range, which is made to hold zero, and moved so that zero is one.

        Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient
        Integer-Arithmetic-Only Inference" (2018), section 3.
        """
        low, high = min(low, 0.0), max(high, 0.0)
        size = (high - low) / (LEVELS - 1)
        # Of nothing but zeros, any steps will do.
        return cls(size, round(-low / size)) if size > np.finfo(np.float32).tiny else cls(1.0, 0)

    @property
    def low(self) -> float:
        """What 0 stands for."""
        return -self.zero * self.size

    @property
    def high(self) -> float:
        """What 255 stands for."""
        return (LEVELS - 1 - self.zero) * self.size

    def nearest(self, values: Array, lowest: int = 0, highest: int = LEVELS - 1) -> Array:
        """The nearest integer for each float, uint8; beyond both ends, the ends."""
        levels = np.rint(values / np.float32(self.size)) + np.float32(self.zero)
        found: Array = np.clip(levels, lowest, highest).astype(np.uint8)
        return found
