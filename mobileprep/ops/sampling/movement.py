"""How much a model's outputs answer to its inputs, so that comparing them means something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.ir.tensor import Array
from mobileprep.ops.differences import is_counted, peak, wide_type

MOVES: Final = 0.01
"""What an output moves at least, as a share of its largest magnitude, where it answers."""


def movements(runs: Sequence[Sequence[Array]]) -> list[float | None]:
    """For each output how far it moves from sample to sample, as a share of its peak.

    Args:
        runs: the outputs of each run.

    Returns:
        shares from 0; of values that are counted, the share of elements that change. Outputs of
        changing shape move by 1, outputs without elements or numbers by 0. None where there is
        a single sample, and nothing to compare.
    """
    return [_movement(column) for column in zip(*runs, strict=True)]


def largest_movement(runs: Sequence[Sequence[Array]]) -> float:
    """How far the output moves that moves the most; 1 where there is nothing to compare."""
    found = movements(runs)
    return max((1.0 if moved is None else moved for moved in found), default=1.0)


def _movement(column: Sequence[Array]) -> float | None:
    if len({array.shape for array in column}) > 1:
        return 1.0
    if column[0].size == 0:
        return 0.0
    if len(column) == 1:
        if column[0].ndim == 0 or len(column[0]) < 2:
            return None
        column = list(column[0])
    if is_counted(column[0]):
        first = column[0]
        return max(float(np.mean(first != other)) for other in column[1:])
    wide = np.stack([array.astype(wide_type(array)) for array in column])
    finite = np.isfinite(wide).all(axis=0)
    highest = peak(column)
    if not finite.any() or not highest:
        return 0.0
    values = wide[:, finite]
    return float(np.abs(values - values[:1]).max() / highest)
