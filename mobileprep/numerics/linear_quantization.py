"""TensorFlow's rules in single precision between whole tensors of integers and of floats.

Source: ``QuantizedToFloatStruct`` and ``FloatToQuantizedStruct`` of TensorFlow's
``quantization_utils.h``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array
from mobileprep.numerics.quantization import (
    Kind,
    Limits,
    as_integers,
    in_blocks,
    round_half_away,
    rounded,
    steps_of,
)

# The largest float below 2**31, which the original clips 32-bit results to.
_HIGHEST: Final = np.float32(2147483520)


@dataclass(frozen=True, slots=True)
class Dequantizer:
    """The rule from integers to floats: origin + integer * scale."""

    origin: np.float32
    scale: np.float32

    @classmethod
    def of(cls, limits: Limits, kind: Kind) -> Dequantizer:
        """The rule for a type's integers over a range."""
        steps = steps_of(kind)
        scale = np.float32(np.float64(limits.span) / (steps.count - 1.0))
        low = limits.low
        if not limits.is_empty:
            low = np.float32(rounded(np.float32(limits.low / scale))) * scale
        return cls(np.float32(low - np.float32(steps.lowest) * scale), scale)

    def __call__(self, values: Array) -> NDArray[np.float32]:
        """What the integers stand for."""
        flat = values.reshape(-1)
        out = np.empty(flat.size, dtype=np.float32)

        def dequantize(part: slice) -> None:
            block = out[part]
            block[:] = flat[part]
            block *= self.scale
            block += self.origin

        in_blocks(dequantize, flat.size)
        return out.reshape(values.shape)


@dataclass(frozen=True, slots=True)
class Quantizer:
    """The rule from floats to integers: round(float * scale) - origin."""

    scale: np.float32
    origin: np.float32
    kind: Kind

    @classmethod
    def of(cls, limits: Limits, kind: Kind) -> Quantizer:
        """The rule for a type's integers over a range."""
        steps = steps_of(kind)
        scale = np.float32(0)
        if not limits.is_empty:
            scale = np.float32((steps.count - 1.0) / np.float64(limits.span))
        low = np.float32(rounded(np.float32(limits.low * scale)))
        return cls(scale, np.float32(low - np.float32(steps.lowest)), kind)

    def __call__(self, x: NDArray[np.float32]) -> Array:
        """The integers next to floats; beyond the range, its ends."""
        steps = steps_of(self.kind)
        lowest, highest = np.float32(steps.lowest), min(np.float32(steps.highest), _HIGHEST)
        # NaN becomes the lowest integer of 32 bits, of which narrower types keep the zeros.
        missing = steps.lowest if self.kind.itemsize == 4 else 0
        flat = x.reshape(-1)
        out = np.empty(flat.size, dtype=self.kind)

        def quantize(part: slice) -> None:
            block = round_half_away(np.multiply(flat[part], self.scale))
            block -= self.origin
            np.clip(block, lowest, highest, out=block)
            out[part] = as_integers(block, self.kind, missing)

        in_blocks(quantize, flat.size)
        return out.reshape(x.shape)
