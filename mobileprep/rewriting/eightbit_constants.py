"""Float constants as eight-bit numbers over one range, as ``quantize_weights`` stores them."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array
from mobileprep.numerics.quantization import STEPS, Dequantizer, Limits, to_quint8
from mobileprep.rewriting.float_constants import LEAST_MAXIMUM, value_range

# Of the zero point, that is a few thousandths of a step: more than single precision rounds by.
_WIDER: Final = np.float32(1 + 2.0**-16)


@dataclass(frozen=True)
class EightbitConstant:
    """Eight-bit elements, and the numbers that 0 and 255 stand for."""

    values: NDArray[np.uint8]
    low: np.float32
    high: np.float32

    def decoded(self) -> NDArray[np.float32]:
        """The floats that Dequantize gives for them, to the bit."""
        return Dequantizer.of(Limits(self.low, self.high), self.values.dtype)(self.values)


def eightbit_constant(values: Array, *, tf115: bool = False) -> EightbitConstant | None:
    """A float32 constant in eight bits; None where its range is not finite.

    The range holds zero. Where it is too narrow for Dequantize, as that of nothing but zeros, it
    is 0 to 1. Where zero lies halfway between two steps, as in the range from -x to x, what stores
    and what decodes may round it to different ones, and all floats come back one step off: the
    range is made wider by a 65,536th then.

    Args:
        values: one or more.
        tf115: as TensorFlow 1.15 has it, with floats one step off.

    Source: ``quantize_weights`` of TensorFlow 1.15's graph transforms.
    """
    low, high = value_range(values)
    low, high = min(low, np.float32(0)), max(high, LEAST_MAXIMUM)
    with np.errstate(over="ignore"):
        step = (high - low) / np.float32(STEPS - 1)
    if not np.isfinite(step):
        return None
    if step < LEAST_MAXIMUM:
        low, high = np.float32(0), np.float32(1)
    if not tf115 and not _agree_on_zero(low, high):
        high *= _WIDER
    return EightbitConstant(to_quint8(values, low, high), low, high)


def _agree_on_zero(low: np.float32, high: np.float32) -> bool:
    """Whether zero comes back as zero."""
    zero = np.zeros(1, np.float32)
    stored = EightbitConstant(to_quint8(zero, low, high), low, high)
    return not stored.decoded().any()
