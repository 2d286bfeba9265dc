"""Bounding every element of a tensor, block by block."""

from __future__ import annotations

import numpy as np

from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import allocated
from mobileprep.numerics.parallel import for_each

# Elements of a block: what is read and written of it stays in a core's own cache.
_BLOCK = 1 << 16


def clipped(x: Array, least: float, most: float) -> Array:
    """A copy whose elements below ``least`` or above ``most`` are these; NaN stays.

    Args:
        x: of a floating type.
        least, most: the bounds; infinity for none.
    """
    low, high = x.dtype.type(least), x.dtype.type(most)
    out = allocated(x.shape, x.dtype)
    source, target = np.ascontiguousarray(x).reshape(-1), out.reshape(-1)

    def work(start: int) -> None:
        block = slice(start, start + _BLOCK)
        # One pass even for two bounds, and faster than a maximum with a scalar.
        np.clip(source[block], low, high, out=target[block])

    for_each(work, range(0, source.size, _BLOCK))
    return out
