"""Matrix products shared among the processors."""

from __future__ import annotations

from typing import Final

import numpy as np

from mobileprep.ir.tensor import Array
from mobileprep.numerics.parallel import for_each

LEAST_WORK: Final = 4 << 20
"""Multiplications that are worth waking a thread for."""

# From how many multiplications on a product is cut into how many parts. Every part has BLAS
# arrange one of the two sides anew, so that small ones cost more than further processors bring.
_PARTS: Final = ((512 << 20, 8), (64 << 20, 4), (2 * LEAST_WORK, 2))


def parts_of(work: int) -> int:
    """Into how many parts to cut some multiplications.

    However many threads there are: the last bits of a product depend on how it is cut.
    """
    return next((parts for least, parts in _PARTS if work >= least), 1)


def multiply(x: Array, y: Array, out: Array) -> None:
    """Write the product of two matrices to ``out``, cut along its longer side."""
    rows, columns = out.shape
    parts = parts_of(rows * columns * x.shape[1])
    if parts < 2:
        np.matmul(x, y, out=out)
        return
    along_columns = columns > rows
    length = columns if along_columns else rows
    step = -(-length // parts)

    def work(start: int) -> None:
        part = slice(start, start + step)
        if along_columns:
            np.matmul(x, y[:, part], out=out[:, part])
        else:
            np.matmul(x[part], y, out=out[part])

    for_each(work, range(0, length, step))
