"""Sums of the rows of segments."""

from __future__ import annotations

import numpy as np

from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.allocation import check_allocation

_NARROW = 4


def summed(rows: Array, ids: Array, count: int) -> Array:
    """The sum of the rows of each segment, 0 where there are none.

    Returns:
        [count, ...] of the rows' type; narrow reals are added in single precision.
    """
    shape = (count, *rows.shape[1:])
    check_allocation(shape, rows.dtype)
    out = np.zeros(shape, rows.dtype)
    if rows.size:
        first = np.flatnonzero(np.diff(ids, prepend=-1))
        narrow = rows.dtype.kind not in "iub" and rows.dtype.itemsize < _NARROW
        wide = rows.astype(np.float32) if narrow else rows
        out[ids[first]] = np.add.reduceat(wide, first, axis=0).astype(rows.dtype)
    return out
