"""Ops that gather slices and elements at indices, and one-hot vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import (
    axis_of,
    check_allocation,
    same_type,
    scalar,
)
from mobileprep.ops.common_costs import free
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import (
    UNKNOWN,
    at_least_rank,
    axis_index,
    concatenate,
    unknown_dims,
)
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


def check_indices(indices: Array, extent: int) -> None:
    """Refuse indices outside [0, extent): numpy would count negative ones from the end.

    Raises:
        IndexError: naming the first bad index.
    """
    bad = (indices < 0) | (indices >= extent)
    if bool(np.any(bad)):
        found = int(indices[bad].flat[0])
        message = f"index {found} is not in [0, {extent})"
        raise IndexError(message)


@kernel("Gather")
def gather(node: Node, x: Array, indices: Array) -> Array:
    """Slices of x along its first axis."""
    if x.ndim < 1:
        message = "a scalar has nothing to gather from"
        raise ValueError(message)
    check_indices(indices, x.shape[0])
    return as_gathered(x, indices, 0)


@shape_fn("Gather")
def gather_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The indices' shape in the place of the first dimension."""
    params = at_least_rank(args.shapes[0], 1)
    return [concatenate(args.shapes[1], None if params is None else params[1:])]


flop_rule("Gather")(free)


def as_gathered(x: Array, indices: Array, axis: int) -> Array:
    """``take`` that gives an array for a single index too."""
    taken = np.empty(_taken_shape(x, indices, axis), dtype=x.dtype)
    if taken.size:
        # Indices are checked before: "clip" spares numpy a copy of the output.
        np.take(x, indices, axis=axis, out=taken, mode="clip")
    return taken


def _taken_shape(x: Array, indices: Array, axis: int) -> tuple[int, ...]:
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    check_allocation(shape, x.dtype)
    return shape


@kernel("GatherV2")
def gather_v2(node: Node, x: Array, indices: Array, axis: Array) -> Array:
    """Slices of x along an axis; the leading ``batch_dims`` axes of both go together."""
    along, batch = axis_of(scalar(axis), x.ndim), node.attr_int("batch_dims", 0)
    if batch < 0:
        batch += indices.ndim
    if not 0 <= batch <= min(along, indices.ndim):
        message = (
            f"batch_dims of {batch} do not fit axis {along} and indices of {indices.ndim} axes"
        )
        raise ValueError(message)
    check_indices(indices, x.shape[along])
    if batch == 0:
        return as_gathered(x, indices, along)
    lead = x.shape[:batch]
    flat = x.reshape(math.prod(lead), *x.shape[batch:])
    rows = indices.reshape(math.prod(lead), *indices.shape[batch:])
    parts = [as_gathered(a, i, along - batch) for a, i in zip(flat, rows, strict=True)]
    shape = (*x.shape[:along], *indices.shape[batch:], *x.shape[along + 1 :])
    return np.stack(parts).reshape(shape) if parts else np.empty(shape, x.dtype)


@shape_fn("GatherV2")
def gather_v2_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The indices' shape, behind its batch dimensions, in the place of an axis."""
    params, indices, axis = args.shapes[0], args.shapes[1], args.scalar(2)
    batch = args.node.attr_int("batch_dims", 0)
    if params is None or indices is None:
        return [None]
    if batch < 0:
        batch += len(indices)
    if axis is None:
        return [unknown_dims(len(params) + len(indices) - 1 - batch)]
    axis = axis_index(axis, len(params))
    return [(*params[:axis], *indices[batch:], *params[axis + 1 :])]


flop_rule("GatherV2")(free)


@kernel("GatherNd")
def gather_nd(node: Node, x: Array, indices: Array) -> Array:
    """Slices of x at index vectors, which stand along the last axis of ``indices``."""
    depth = indices.shape[-1] if indices.ndim else 0
    if indices.ndim < 1 or depth > x.ndim:
        message = f"indices of shape {list(indices.shape)} into {x.ndim} axes"
        raise ValueError(message)
    for axis in range(depth):
        check_indices(indices[..., axis], x.shape[axis])
    if depth == 0:
        return np.broadcast_to(x, (*indices.shape[:-1], *x.shape))
    found = x[tuple(indices[..., axis] for axis in range(depth))]
    return np.asarray(found, dtype=x.dtype)


@shape_fn("GatherNd")
def gather_nd_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """For each index vector what the leading dimensions leave."""
    params, indices = args.shapes[0], at_least_rank(args.shapes[1], 1)
    if params is None or indices is None or indices[-1] < 0:
        return [None]
    at_least_rank(params, indices[-1])
    return [(*indices[:-1], *params[indices[-1] :])]


flop_rule("GatherNd")(free)


@kernel("OneHot")
def one_hot(node: Node, indices: Array, depth: Array, on: Array, off: Array) -> Array:
    """A new axis on which the index's place holds ``on`` and the rest ``off``."""
    same_type(node, on, off)
    count, axis = scalar(depth), node.attr_int("axis", -1)
    along = axis_of(axis, indices.ndim + 1)
    shape = (*indices.shape[:along], count, *indices.shape[along:])
    check_allocation(shape, on.dtype)
    places = np.arange(count).reshape(-1, *[1] * (indices.ndim - along))
    return np.where(np.expand_dims(indices, along) == places, on, off)


@shape_fn("OneHot")
def one_hot_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The indices' shape with one more dimension, as deep as the given depth."""
    source, depth = args.shapes[0], args.scalar(1)
    axis = args.node.attr_int("axis", -1)
    if source is None:
        return [None]
    axis = axis_index(axis, len(source) + 1)
    return [(*source[:axis], UNKNOWN if depth is None else depth, *source[axis:])]


flop_rule("OneHot")(free)
