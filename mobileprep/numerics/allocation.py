"""A bound on the size of tensors, checked before memory is asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mobileprep.ir.tensor import Array

# A tensor beyond this is a slip or an attack in any graph for a mobile device.
MAX_OUTPUT_BYTES = 1 << 32


def check_allocation(shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Refuse shapes that cannot be, or that no device could hold.

    Raises:
        ValueError: a negative dimension, or more than ``MAX_OUTPUT_BYTES``.
    """
    if any(d < 0 for d in shape):
        message = f"{list(shape)} is no shape"
        raise ValueError(message)
    if math.prod(shape) * dtype.itemsize > MAX_OUTPUT_BYTES:
        message = f"a tensor of shape {list(shape)} passes {MAX_OUTPUT_BYTES} bytes"
        raise ValueError(message)


def allocated(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array whose elements are still to be set, of a shape that was checked."""
    check_allocation(shape, dtype)
    return np.empty(tuple(shape), dtype)
