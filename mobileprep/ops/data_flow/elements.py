"""Elements of lists: those that were never set, and several made one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import check_allocation
from mobileprep.ops.numerics.allocation import check_bytes

_POINTER = 8
"""Bytes."""


def check_places(count: int, most: int) -> None:
    """Refuse a list that is longer than any sequence, or than the memory that is left."""
    if not 0 <= count <= most:
        message = f"a list of {count} elements"
        raise ValueError(message)
    check_bytes(count * _POINTER, f"a list of {count} elements")


class Blanks:
    """Zeros in the place of elements that were never set, one array for each shape.

    Args:
        dtype: their type.
    """

    def __init__(self, dtype: np.dtype[np.generic]) -> None:
        self._dtype = dtype
        self._made: dict[tuple[int, ...], Array] = {}
        self._bytes = 0

    def zeros(self, shape: tuple[int, ...]) -> Array:
        """Zeros, not to be written to."""
        made = self._made.get(shape)
        if made is None:
            check_allocation(shape, self._dtype)
            made = self._made[shape] = np.zeros(shape, self._dtype)
            self._bytes += made.nbytes
            check_bytes(self._bytes, "the elements that were not set")
        return made


def stacked(parts: Sequence[Array]) -> Array:
    """Elements along a new first axis."""
    check_bytes(sum(x.nbytes for x in parts), "the stacked elements")
    return np.stack(parts)


def joined(parts: Sequence[Array]) -> Array:
    """Elements one behind another along their first axis; raises as ``stacked`` does."""
    check_bytes(sum(x.nbytes for x in parts), "the joined elements")
    return np.concatenate(parts)
