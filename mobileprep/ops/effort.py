"""What any node is charged for, beside the work that its kernel tells of: reading and writing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.ir.tensor import Array
from mobileprep.numerics.work import spend

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


def charge_reading(op: str, inputs: Sequence[object]) -> None:
    """Count what a node is about to read.

    Raises:
        OverWorkError: the run has done all that it may.
    """
    if op not in _PARTIAL:
        spend(sum(_reading(x) for x in inputs if isinstance(x, np.ndarray)), "reading its inputs")


def charge_making(inputs: Sequence[object], results: Sequence[object]) -> None:
    """Count what a node has made; what it has handed on, or views of it, are free.

    Raises:
        OverWorkError: as ``charge_reading``.
    """
    made = [x for x in results if isinstance(x, np.ndarray) and x.base is None]
    given = {id(x) for x in inputs} if made else ()
    spend(sum(x.nbytes * _MADE for x in made if id(x) not in given), "making its results")


def _reading(given: Array) -> int:
    return given.size * _TEXT if given.dtype.hasobject else given.nbytes * _READ
