"""Helpers for kernels: results as arrays, axes, dimensions held by tensors, limits of sizes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.allocation import check_allocation as check_allocation

T = TypeVar("T")

# More outputs than any node has; each takes memory even if its tensor is empty.
_MAX_OUTPUTS = 1 << 20
# Bytes that are small compared to any useful limit.
_LITTLE = 1 << 20


def as_array(result: Any, like: Array) -> Array:  # noqa: ANN401 - arrays or numpy's scalars
    """Return a ufunc's result as an array; numpy returns a scalar if all operands are 0-d."""
    if isinstance(result, np.ndarray):
        return result
    return np.asarray(result, dtype=getattr(result, "dtype", like.dtype))


def same_type(node: Node, *arrays: Array) -> None:
    """Raise an error for operands of different types, which numpy would silently promote."""
    first = arrays[0].dtype
    for array in arrays:
        if array.dtype != first:
            message = f"node {node.name!r} ({node.op}) mixes {first} with {array.dtype}"
            raise InvalidGraphError(message, "cast one of its inputs")


def numpy_attr(node: Node, name: str, default: DType) -> np.dtype[Any]:
    """Return the numpy type of a type attribute, or of the default if it has none."""
    kind = node.attr_dtype(name, default).numpy
    return kind if kind is not None else np.dtype(default.numpy)


def scalar(array: Array) -> int:
    """Return the single integer of a tensor."""
    if array.size != 1:
        message = f"expected one number, found the shape {list(array.shape)}"
        raise ValueError(message)
    return int(array.reshape(()))


def integers(array: Array) -> tuple[int, ...]:
    """Return the integers of a scalar or vector."""
    if array.ndim > 1:
        message = f"expected a vector, found the shape {list(array.shape)}"
        raise ValueError(message)
    return tuple(int(x) for x in array.reshape(-1).tolist())


def dimensions(array: Array, dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Return the shape that a tensor holds, after a check that it can be allocated."""
    shape = integers(array)
    check_allocation(shape, dtype)
    return shape


def handle_of(value: object) -> Array:
    """Wrap an object in an array, the form in which resources and variants are passed."""
    out = np.empty((), dtype=object)
    out[()] = value
    return out


def object_of(handle: Array, kind: type[T], what: str) -> T:
    """Return the object of a handle, which ``what`` describes in the error for other objects."""
    value = handle.item() if handle.dtype == object and handle.size == 1 else None
    if not isinstance(value, kind):
        message = f"the handle is not a {what}"
        raise TypeError(message)
    return value


def check_element(index: int, count: int) -> None:
    """Raise an error for an index outside of a list; Python would accept negative ones."""
    if not 0 <= index < count:
        message = f"no element {index} among {count}"
        raise IndexError(message)


def check_broadcast(*arrays: Array) -> None:
    """Raise an error for small operands that would broadcast beyond the memory limit."""
    # The product of sizes is an upper bound of the result, and faster to compute.
    if math.prod(x.size for x in arrays) * arrays[0].dtype.itemsize > _LITTLE:
        check_allocation(np.broadcast_shapes(*(x.shape for x in arrays)), arrays[0].dtype)


def check_outputs(count: int) -> None:
    """Raise an error for an invalid number of outputs."""
    if not 1 <= count <= _MAX_OUTPUTS:
        message = f"a node cannot have {count} outputs"
        raise ValueError(message)


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the front."""
    if not -rank <= axis < rank:
        message = f"no axis {axis} among {rank}"
        raise ValueError(message)
    return axis % rank


def distinct_axes_of(array: Array, rank: int) -> tuple[int, ...]:
    """Return axes like ``axes_of``, but raise an error for duplicates."""
    axes = sorted(axis_of(a, rank) for a in integers(array))
    twice = next((a for a, b in pairwise(axes) if a == b), None)
    if twice is not None:
        message = f"the axis {twice} is named twice"
        raise ValueError(message)
    return tuple(axes)


def axes_of(array: Array, rank: int) -> tuple[int, ...]:
    """Return the axes held by a tensor, counted from the front, sorted, without duplicates."""
    return tuple(sorted({axis_of(a, rank) for a in integers(array)}))
