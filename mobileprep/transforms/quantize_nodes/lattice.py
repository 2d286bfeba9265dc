"""Weights that lie on equal steps already, as fake quantization leaves them when it is folded."""

from __future__ import annotations

from typing import Final

import numpy as np

from mobileprep.ir.tensor import Array
from mobileprep.transforms.quantize_nodes.steps import LEVELS, EvenSteps

_FEW: Final = 1 << 12
# Products of a step and a whole number, in single precision, are off by less of a step.
_SLACK: Final = 1e-3


def steps_of_lattice(weights: Array) -> EvenSteps | None:
    """The steps, zero among them, that all weights lie on; None where they lie on none.

    Args:
        weights: finite float32 numbers.
    """
    flat = weights.reshape(-1)
    if np.unique(flat[:_FEW]).size > LEVELS:
        return None
    values = np.unique(flat).astype(np.float64)
    if not 2 <= values.size <= LEVELS:
        return None
    size = float(np.diff(values).min())
    if size <= np.finfo(np.float32).tiny:
        return None
    whole = np.rint(values / size)
    lowest, highest = min(whole[0], 0), max(whole[-1], 0)
    if not 0 < highest - lowest < LEVELS:
        return None
    # The difference of two rounded numbers is less exact than the largest of them.
    size = float((values * whole).sum() / np.square(whole).sum())
    is_on_steps = np.abs(values / size - whole).max() < _SLACK
    return EvenSteps(size, int(-lowest)) if is_on_steps else None
