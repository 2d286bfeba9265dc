"""Effort of kernels, charged to the budget of a run before they compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.core.limits import spend
from mobileprep.graph.tensor import Array

# Operations that take as long as reading a byte, or making one by some function.
_READ: Final = 2


_MADE: Final = 64


# And as handling a text, which is an object of its own.
_TEXT: Final = 1 << 16


# They look at little of what they are given, whatever its size.
_PARTIAL: Final = frozenset(
    {
        *("Enter", "Exit", "ExpandDims", "Gather", "GatherNd", "GatherV2", "Identity", "IdentityN"),
        *("LoopCond", "Merge", "NextIteration", "Rank", "Reshape", "Shape", "ShapeN", "Size"),
        *("Slice", "Split", "SplitV", "Squeeze", "StopGradient", "StridedSlice", "Switch"),
        *("TensorArrayReadV2", "TensorArrayReadV3", "TensorListGetItem", "Unpack"),
    }
)


def charge(op: str, inputs: Sequence[object], results: Sequence[object]) -> None:
    """Count what a node has read and made; what it has handed on, or views of it, are free."""
    total = 0
    is_partial = op in _PARTIAL
    # Loops, as this is done at each step of a run.
    if not is_partial:
        for x in inputs:
            if isinstance(x, np.ndarray):
                total += x.size * _TEXT if x.dtype.hasobject else x.nbytes * _READ
    for x in results:
        if isinstance(x, np.ndarray) and x.base is None and not (is_partial and _given(x, inputs)):
            total += x.nbytes * _MADE
    spend(total, "reading and writing")


def _given(made: Array, inputs: Sequence[object]) -> bool:
    return any(made is x for x in inputs)
