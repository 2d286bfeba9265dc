"""Matrix products shared among the processors."""

from __future__ import annotations

import numpy as np

from mobileprep.ir.tensor import Array
from mobileprep.numerics.parallel import for_each, threads

# Multiplications that are worth waking a thread for.
LEAST_WORK = 4 << 20
# Rows below which BLAS spends more on arranging the right side than on multiplying.
FEW_ROWS = 128


def multiply(x: Array, y: Array, out: Array) -> None:
    """Write the product of two matrices to ``out``, cut along its longer side."""
    rows, columns = out.shape
    shared = min(threads(), rows * columns * x.shape[1] // LEAST_WORK)
    if shared < 2:
        np.matmul(x, y, out=out)
        return
    along_columns = rows < FEW_ROWS and columns > rows
    length = columns if along_columns else rows
    step = -(-length // shared)

    def work(start: int) -> None:
        part = slice(start, start + step)
        if along_columns:
            np.matmul(x, y[:, part], out=out[:, part])
        else:
            np.matmul(x[part], y, out=out[part])

    for_each(work, range(0, length, step))
