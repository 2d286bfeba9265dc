"""What kernels share: results as arrays, axes, dimensions held by tensors, bounds on sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mobileprep.errors import InvalidGraphError
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array

# A tensor beyond this is a slip or an attack in any graph for a mobile device.
MAX_OUTPUT_BYTES = 1 << 32


def as_array(result: Any, like: Array) -> Array:  # noqa: ANN401 - arrays or numpy's scalars
    """A ufunc's result, which numpy unwraps to a scalar where all operands are 0-d."""
    if isinstance(result, np.ndarray):
        return result
    return np.asarray(result, dtype=getattr(result, "dtype", like.dtype))


def same_type(node: Node, *arrays: Array) -> None:
    """Refuse operands of different types, which numpy would promote in silence.

    Raises:
        InvalidGraphError: the types differ.
    """
    first = arrays[0].dtype
    for array in arrays:
        if array.dtype != first:
            message = f"node {node.name!r} ({node.op}) mixes {first} with {array.dtype}"
            raise InvalidGraphError(message, "cast one of its inputs")


def scalar(array: Array) -> int:
    """The one integer of a tensor.

    Raises:
        ValueError: the tensor has no or several elements.
    """
    if array.size != 1:
        message = f"expected one number, found the shape {list(array.shape)}"
        raise ValueError(message)
    return int(array.reshape(()))


def integers(array: Array) -> tuple[int, ...]:
    """The integers of a scalar or vector.

    Raises:
        ValueError: the tensor has more axes than one.
    """
    if array.ndim > 1:
        message = f"expected a vector, found the shape {list(array.shape)}"
        raise ValueError(message)
    return tuple(int(x) for x in array.reshape(-1).tolist())


def dimensions(array: Array, dtype: np.dtype[Any]) -> tuple[int, ...]:
    """The shape that a tensor holds, checked before anything of that shape is allocated."""
    shape = integers(array)
    check_allocation(shape, dtype)
    return shape


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


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        ValueError: the tensor has no such axis.
    """
    if not -rank <= axis < rank:
        message = f"there is no axis {axis} among {rank}"
        raise ValueError(message)
    return axis % rank


def axes_of(array: Array, rank: int) -> tuple[int, ...]:
    """Axes held by a tensor, counted from the front, sorted, none twice."""
    return tuple(sorted({axis_of(a, rank) for a in integers(array)}))
