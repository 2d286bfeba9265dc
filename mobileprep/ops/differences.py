"""How far apart two results of one model are."""

from __future__ import annotations

import math

import numpy as np

from mobileprep.errors import AccuracyError
from mobileprep.ir.tensor import Array


def largest_difference(expected: Array, found: Array, name: str, where: str = "") -> float:
    """The largest absolute difference of any element; NaN in the same place agrees.

    Args:
        expected: the source's output.
        found: the other's.
        name: what the output is called, for messages.
        where: the place to blame, for messages.

    Returns:
        The difference; infinity where only one side is NaN or infinite; for text the share of
        elements that differ.

    Raises:
        AccuracyError: the shapes differ.
    """
    if found.shape != expected.shape:
        message = (
            f"the output {name!r} has the shape {list(found.shape)}; "
            f"the source's is {list(expected.shape)}"
        )
        raise AccuracyError(message, "a transform has broken the model", where)
    if expected.dtype.kind in "OSU":
        return float(np.mean(expected != found)) if expected.size else 0.0
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    x, y = expected.astype(wide), found.astype(wide)
    with np.errstate(invalid="ignore"):
        gaps = np.asarray(np.abs(x - y))  # of scalars, numpy makes no array
    gaps[(x == y) | (np.isnan(x) & np.isnan(y))] = 0.0
    largest = float(gaps.max(initial=0.0))
    return math.inf if math.isnan(largest) or np.isnan(gaps).any() else largest


def shown_difference(difference: float) -> float:
    """A difference to two significant digits: those beyond depend on the processor's BLAS."""
    return float(f"{difference:.2g}")
