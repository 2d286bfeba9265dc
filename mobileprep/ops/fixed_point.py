"""32-bit integers to eight bits by fixed-point arithmetic.

Source: ``RequantizeManyInNewRange`` of TensorFlow's ``quantization_utils.h``; TensorFlow 1.15 cuts
the offset of the new range where later ones round it, which changes few numbers by one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.ir.tensor import Array
from mobileprep.ops.quantization import Limits, as_int64, round_half_away

# Fractions are counted in units of 2**-16; sums of 32 bits in units of 2**-32 of their range.
_ONE: Final = 1 << 16
_SHIFT: Final = 16
_SUM_SHIFT: Final = 32
_HIGHEST: Final = 255
# A block and its copy in 64 bits stay in a core's cache.
_BLOCK: Final = 1 << 15


def to_quint8(x: Array, limits: Limits, wanted: Limits) -> NDArray[np.uint8]:
    """The eight-bit number next to each 32-bit number.

    Args:
        x: int32 of any shape.
        limits: the range of x.
        wanted: the range of the result; numbers beyond it become its ends.
    """
    scale, offset = _factors(limits, wanted)
    flat = x.reshape(-1)
    out = np.empty(flat.size, dtype=np.uint8)
    work = np.empty(min(_BLOCK, flat.size), dtype=np.int64)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        wide = work[: block.size]
        np.multiply(block, scale, out=wide, dtype=np.int64)
        wide >>= _SUM_SHIFT
        wide += offset
        wide >>= _SHIFT
        np.clip(wide, 0, _HIGHEST, out=wide)
        out[start : start + _BLOCK] = wide
    return out.reshape(x.shape)


def _factors(limits: Limits, wanted: Limits) -> tuple[np.int64, np.int64]:
    """What to multiply a number by, and what to add to the upper half of the product."""
    span = np.float64(wanted.span)
    middle = np.float32(np.float64(np.float32(limits.low + limits.high)) / 2.0)
    half = _ONE >> 1
    with np.errstate(all="ignore"):
        if wanted.span == 0:
            return np.int64(0), np.int64(half)
        scale = as_int64(np.array(255.0 * _ONE * np.float64(limits.span) / span))
        per_unit = np.float32(255.0 / span)
        added = as_int64(np.array(np.float64(np.float32(middle * per_unit) * np.float32(_ONE))))
        taken = as_int64(round_half_away(np.array(_ONE * (np.float64(wanted.low) * 255.0) / span)))
        return np.int64(scale), np.int64(added - taken + half)
