"""32-bit integers to eight bits by fixed-point arithmetic.

Source: ``RequantizeManyInNewRange`` of TensorFlow's ``quantization_utils.h``; TensorFlow 1.15 cuts
the offset of the new range where later ones round it, which changes few numbers by one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.ir.tensor import Array
from mobileprep.numerics.quantization import Limits, as_int64, in_blocks, rounded, wrapped

# Fractions are counted in units of 2**-16; sums of 32 bits in units of 2**-32 of their range.
_SHIFT: Final = 16
_ONE: Final = 1 << _SHIFT
_SUM_SHIFT: Final = 32
_HIGHEST: Final = np.int32(255)
# Offsets beyond this leave nothing of the sums, and would not fit 32 bits after the shift.
_FAR: Final = 1 << 44


def to_quint8(x: Array, limits: Limits, wanted: Limits) -> NDArray[np.uint8]:
    """The eight-bit number next to each 32-bit number.

    Args:
        x: int32 of any shape.
        limits: the range of x.
        wanted: the range of the result; numbers beyond it become its ends.
    """
    scale, offset = (np.int64(n) for n in _factors(limits, wanted))
    flat = x.reshape(-1)
    out = np.empty(flat.size, dtype=np.uint8)

    def convert(part: slice) -> None:
        wide = flat[part].astype(np.int64)
        wide *= scale
        wide >>= _SUM_SHIFT
        wide += offset
        wide >>= _SHIFT
        out[part] = np.clip(wide.astype(np.int32), np.int32(0), _HIGHEST)

    in_blocks(convert, flat.size)
    return out.reshape(x.shape)


def _factors(limits: Limits, wanted: Limits) -> tuple[int, int]:
    """What to multiply a number by, and what to add to the upper half of the product."""
    half = _ONE >> 1
    if wanted.span == 0:
        return 0, half
    span = np.float64(wanted.span)
    scale = as_int64(255.0 * _ONE * np.float64(limits.span) / span)
    middle = np.float32(np.float64(np.float32(limits.low + limits.high)) / 2.0)
    added = as_int64(np.float64(middle * np.float32(255.0 / span) * np.float32(_ONE)))
    taken = as_int64(rounded(_ONE * (np.float64(wanted.low) * 255.0) / span))
    return scale, min(max(wrapped(added - taken + half, 64), -_FAR), _FAR)
