"""What kernels of sparse tensors share: checks of their parts, and places in row-major order."""

from __future__ import annotations

import math

import numpy as np

from mobileprep.ir.tensor import Array
from mobileprep.ops.array.gathering import check_indices
from mobileprep.ops.arrays import integers

_MOST = (1 << 63) - 1


def sparse_shape(indices: Array, shape: Array, values: Array | None = None) -> tuple[int, ...]:
    """The dense shape of a sparse tensor whose parts fit each other.

    Args:
        indices: [count, axes] integers.
        shape: [axes] integers.
        values: [count], where there are any.

    Raises:
        ValueError: the parts do not fit, or no tensor has so many elements.
        IndexError: an index lies outside of the shape.
    """
    dims = integers(shape)
    if indices.ndim != 2 or shape.ndim != 1 or indices.shape[1] != len(dims):
        message = f"indices of shape {list(indices.shape)} into {len(dims)} axes"
        raise ValueError(message)
    if values is not None and values.shape != (len(indices),):
        message = f"{len(indices)} indices for values of shape {list(values.shape)}"
        raise ValueError(message)
    if min(dims, default=0) < 0 or math.prod(dims) > _MOST:
        message = f"{list(dims)} is no shape"
        raise ValueError(message)
    for axis, extent in enumerate(dims):
        check_indices(indices[:, axis], extent)
    return dims


def in_order(indices: Array) -> Array:
    """Which index comes first, second, ... in row-major order; equal ones stay as they are."""
    if not indices.shape[1]:
        return np.arange(len(indices))
    return np.lexsort(indices.T[::-1])


def flat_places(indices: Array, shape: tuple[int, ...]) -> Array:
    """The place of each index in row-major order, int64."""
    place = np.zeros(len(indices), np.int64)
    for axis, extent in enumerate(shape):
        place = place * extent + indices[:, axis]
    return place
