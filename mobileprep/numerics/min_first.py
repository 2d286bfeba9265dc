"""Eight-bit numbers by the MIN_FIRST rule: 0 is the range's minimum, 255 its maximum."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.ir.tensor import Array

STEPS: Final = 256

# A block and its copy in double precision stay in a core's cache.
_BLOCK: Final = 1 << 15
# The largest double below one half: added before cutting, it rounds halves away from zero, and
# nothing else up, which adding one half itself does not.
_ALMOST_HALF: Final = np.nextafter(0.5, 0.0)


def to_quint8(values: Array, low: np.float32, high: np.float32) -> NDArray[np.uint8]:
    """The nearest eight-bit number for each value; numbers beyond the range become 0 or 255.

    Args:
        values: finite float32 of any shape.
        low: what 0 stands for.
        high: what 255 stands for; larger than ``low``.

    Source: ``FloatToQuantized`` of TensorFlow's quantization utilities, to the last bit: the scale
    and the products are in double precision, halves are rounded away from zero.
    """
    scale = STEPS / (float(high - low) * (STEPS / (STEPS - 1.0)))
    lowest = _rounded(np.array([float(low) * scale]))[0]
    flat = values.reshape(-1)
    out = np.empty(flat.size, dtype=np.uint8)
    work, offset = np.empty((2, min(_BLOCK, flat.size)), dtype=np.float64)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        scaled = work[: block.size]
        scaled[:] = block
        scaled *= scale
        _round(scaled, offset[: block.size])
        scaled -= lowest
        np.clip(scaled, 0, STEPS - 1, out=scaled)
        out[start : start + _BLOCK] = scaled
    return out.reshape(values.shape)


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _round(values, np.empty_like(values))
    return values


def _round(values: NDArray[np.float64], work: NDArray[Any]) -> None:
    """Round in place to the nearest whole numbers, halves away from zero, as C's ``round``."""
    np.copysign(_ALMOST_HALF, values, out=work)
    values += work
    np.trunc(values, out=values)
