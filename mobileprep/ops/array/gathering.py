"""Gathering, selecting, and scattering elements by index or condition."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import (
    axis_of,
    check_allocation,
    check_broadcast,
    check_outputs,
    dimensions,
    integers,
    same_type,
    scalar,
)
from mobileprep.ops.kernel import flop_rule, free, kernel, per_input
from mobileprep.ops.numerics.allocation import allocated
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    at_least_rank,
    axis_index,
    broadcast,
    concatenate,
    element_count,
    is_full,
    merge,
    shape_fn,
    shape_in,
    unchanged,
    unknown_dims,
    with_rank,
)


def check_indices(indices: Array, extent: int) -> None:
    """Raise an error for indices outside [0, extent); numpy would accept negative ones."""
    bad = (indices < 0) | (indices >= extent)
    if bool(np.any(bad)):
        index = int(indices[bad].flat[0])
        message = f"index {index} is not in [0, {extent})"
        raise IndexError(message)


@kernel("Gather", flops=free)
def gather(node: Node, x: Array, indices: Array) -> Array:
    """Gather slices of x along its first axis."""
    if x.ndim < 1:
        message = "a scalar has nothing to gather from"
        raise ValueError(message)
    check_indices(indices, x.shape[0])
    return as_gathered(x, indices, 0)


@shape_fn("Gather")
def gather_shape(args: ShapeArgs) -> OutputShapes:
    """Return x's shape with the first dimension replaced by the indices' shape."""
    params = at_least_rank(args.shapes[0], 1)
    return [concatenate(args.shapes[1], None if params is None else params[1:])]


def as_gathered(x: Array, indices: Array, axis: int) -> Array:
    """Gather like ``take``, but return an array for a single index, too."""
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    out = allocated(shape, x.dtype)
    if out.size:
        # Indices were checked already: "clip" avoids a copy of the output in numpy.
        np.take(x, indices, axis=axis, out=out, mode="clip")
    return out


@kernel("GatherV2", flops=free)
def gather_v2(node: Node, x: Array, indices: Array, axis: Array) -> Array:
    """Gather slices of x along an axis, with ``batch_dims`` leading axes in common."""
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
def gather_v2_shape(args: ShapeArgs) -> OutputShapes:
    """Return x's shape with an axis replaced by the indices' shape after its batch dimensions."""
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


@kernel("GatherNd", flops=free)
def gather_nd(node: Node, x: Array, indices: Array) -> Array:
    """Gather slices of x at index vectors, which are in the last axis of ``indices``."""
    depth = indices.shape[-1] if indices.ndim else 0
    if indices.ndim < 1 or depth > x.ndim:
        message = f"indices of shape {list(indices.shape)} into {x.ndim} axes"
        raise ValueError(message)
    for axis in range(depth):
        check_indices(indices[..., axis], x.shape[axis])
    if depth == 0:
        return np.broadcast_to(x, (*indices.shape[:-1], *x.shape))
    slices = x[tuple(indices[..., axis] for axis in range(depth))]
    return np.asarray(slices, dtype=x.dtype)


@shape_fn("GatherNd")
def gather_nd_shape(args: ShapeArgs) -> OutputShapes:
    """Return the remaining dimensions for each index vector."""
    params, indices = args.shapes[0], at_least_rank(args.shapes[1], 1)
    if params is None or indices is None or indices[-1] < 0:
        return [None]
    at_least_rank(params, indices[-1])
    return [(*indices[:-1], *params[indices[-1] :])]


@kernel("OneHot", flops=free)
def one_hot(node: Node, indices: Array, depth: Array, on: Array, off: Array) -> Array:
    """Create a new axis with ``on`` at the index and ``off`` elsewhere."""
    same_type(node, on, off)
    count, axis = scalar(depth), node.attr_int("axis", -1)
    along = axis_of(axis, indices.ndim + 1)
    shape = (*indices.shape[:along], count, *indices.shape[along:])
    check_allocation(shape, on.dtype)
    places = np.arange(count).reshape(-1, *[1] * (indices.ndim - along))
    return np.where(np.expand_dims(indices, along) == places, on, off)


@shape_fn("OneHot")
def one_hot_shape(args: ShapeArgs) -> OutputShapes:
    """Return the indices' shape with an additional dimension of the given depth."""
    source, depth = args.shapes[0], args.scalar(1)
    axis = args.node.attr_int("axis", -1)
    if source is None:
        return [None]
    axis = axis_index(axis, len(source) + 1)
    return [(*source[:axis], UNKNOWN if depth is None else depth, *source[axis:])]


@kernel("UnravelIndex", flops=free)
def unravel_index(node: Node, indices: Array, dims: Array) -> Array:
    """Return the coordinates of flat indices into a shape, a row for each axis."""
    shape = integers(dims)
    check_indices(indices, int(np.prod(shape, dtype=np.int64)))
    return np.array(np.unravel_index(indices, shape), dtype=indices.dtype)


@shape_fn("UnravelIndex")
def unravel_index_shape(args: ShapeArgs) -> OutputShapes:
    """Return a row for each axis, or a vector for a single index."""
    indices, axes = args.shapes[0], with_rank(args.shapes[1], 1)[0]
    if indices is None:
        return [None]
    return [(axes, element_count(indices)) if indices else (axes,)]


@kernel("DataFormatVecPermute", "DataFormatDimMap", shape=unchanged, flops=free)
def data_format(node: Node, x: Array) -> Array:
    """Permute dimensions, or axis numbers, from one data format to another."""
    source = node.attr_str("src_format", "NHWC")
    target = node.attr_str("dst_format", "NCHW")
    if sorted(source) != sorted(target):
        message = f"{source!r} and {target!r} are not the same axes"
        raise ValueError(message)
    if node.op == "DataFormatDimMap":
        check_indices(x % len(source), len(source))
        return np.take(np.array([target.index(c) for c in source], dtype=x.dtype), x % len(source))
    if len(x) == len(source) - 2:
        source = "".join(c for c in source if c in "HWD")
        target = "".join(c for c in target if c in "HWD")
    return x[[source.index(c) for c in target]]


@kernel("Select", flops=free)
def select(node: Node, condition: Array, x: Array, y: Array) -> Array:
    """Select x where the condition is true, else y; a vector condition selects whole slices."""
    same_type(node, x, y)
    if x.shape != y.shape:
        message = "both branches must have one shape"
        raise ValueError(message)
    if condition.ndim == 0:
        return x if bool(condition) else y
    if condition.shape != x.shape:
        if condition.ndim != 1 or condition.shape[0] != x.shape[0]:
            message = "the condition must have the branches' shape, or an element for each slice"
            raise ValueError(message)
        condition = condition.reshape(-1, *[1] * (x.ndim - 1))
    return np.where(condition, x, y)


@shape_fn("Select")
def select_shape(args: ShapeArgs) -> OutputShapes:
    """Return the branches' shape, which a condition of higher rank than a vector must have."""
    condition, data = args.shapes[0], merge(args.shapes[1], args.shapes[2])
    if condition is not None and data is not None and len(condition) > 1:
        return [merge(condition, data)]
    return [data]


@shape_fn("RefSelect")
def ref_select_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of all choices, if all are known and equal."""
    first, *rest = args.shapes[1:]
    return [first if is_full(first) and all(s == first for s in rest) else None]


@kernel("SelectV2", flops=free)
def select_v2(node: Node, condition: Array, x: Array, y: Array) -> Array:
    """Select x where the condition is true, else y, all broadcast."""
    same_type(node, x, y)
    check_broadcast(x, y, condition)
    return np.where(condition, x, y)


@shape_fn("SelectV2")
def select_v2_shape(args: ShapeArgs) -> OutputShapes:
    """Return the broadcast shape of three inputs."""
    return [broadcast(broadcast(args.shapes[0], args.shapes[1]), args.shapes[2])]


@kernel("Where", flops=free)
def where(node: Node, condition: Array) -> Array:
    """Return the coordinates of nonzero elements, a row each."""
    if condition.ndim < 1:
        message = "a scalar has no coordinates"
        raise ValueError(message)
    return np.argwhere(condition).astype(np.int64, copy=False)


@shape_fn("Where")
def where_shape(args: ShapeArgs) -> OutputShapes:
    """Return a row for each nonzero element, with the input's rank as length."""
    shape = args.shapes[0]
    return [(UNKNOWN, UNKNOWN if shape is None else len(shape))]


Write = Callable[[Array, Any, Array], None]


def _assign(target: Array, places: Any, updates: Array) -> None:  # noqa: ANN401 - a numpy index
    target[places] = updates


# How several updates of one element combine; numpy's own loop, so that none is lost.
_WRITES: dict[str, Write] = {
    "TensorScatterAdd": np.add.at,
    "TensorScatterMax": np.maximum.at,
    "TensorScatterMin": np.minimum.at,
    "TensorScatterSub": np.subtract.at,
    "TensorScatterUpdate": _assign,
    "ScatterNdNonAliasingAdd": np.add.at,
}


@kernel("ScatterNd", flops=free)
def scatter_nd(node: Node, indices: Array, updates: Array, dims: Array) -> Array:
    """Add updates at index vectors to zeros of a shape."""
    out = np.zeros(dimensions(dims, updates.dtype), dtype=updates.dtype)
    _scatter(out, indices, updates, np.add.at)
    return out


@shape_fn("ScatterNd")
def scatter_nd_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape that the third input holds."""
    target = args.as_shape(2)
    _check_updates(target, args.shapes[0], args.shapes[1])
    return [target]


def _check_updates(target: TensorShape, indices: TensorShape, updates: TensorShape) -> None:
    """Check that the updates have the shape of the indexed slices."""
    at_least_rank(indices, 1)
    if target is None or indices is None or updates is None or indices[-1] < 0:
        return
    at_least_rank(target, indices[-1])
    merge((*indices[:-1], *target[indices[-1] :]), updates)


def _scatter(out: Array, indices: Array, updates: Array, write: Write) -> None:
    depth = indices.shape[-1] if indices.ndim else 0
    if indices.ndim < 1 or depth > out.ndim:
        message = f"indices of shape {list(indices.shape)} into {out.ndim} axes"
        raise ValueError(message)
    if updates.shape != (*indices.shape[:-1], *out.shape[depth:]):
        message = f"updates of shape {list(updates.shape)} do not fit the indices"
        raise ValueError(message)
    for axis in range(depth):
        check_indices(indices[..., axis], out.shape[axis])
    if updates.size:
        write(out, tuple(indices[..., axis] for axis in range(depth)), updates)


@kernel(*_WRITES)
def tensor_scatter(node: Node, x: Array, indices: Array, updates: Array) -> Array:
    """Write updates at index vectors to a copy of x, in the manner of the op."""
    same_type(node, x, updates)
    out: Array = x.copy()
    _scatter(out, indices, updates, _WRITES[node.op])
    return out


@shape_fn(*_WRITES)
def tensor_scatter_shape(args: ShapeArgs) -> OutputShapes:
    """Return the first input's shape, and check that of the updates."""
    target, indices, updates = args.shapes
    _check_updates(target, indices, updates)
    return [target]


# One operation for each element of the updates.
flop_rule(
    *("TensorScatterAdd", "TensorScatterMax", "TensorScatterMin", "TensorScatterSub"),
    "ScatterNdNonAliasingAdd",
)(per_input(1, index=2))


flop_rule("TensorScatterUpdate")(free)


@kernel("SparseToDense", shape=shape_in(1), flops=free)
def sparse_to_dense(
    node: Node, indices: Array, dims: Array, values: Array, default: Array
) -> Array:
    """Create a tensor of a default value with other values at some indices."""
    same_type(node, values, default)
    out = np.full(dimensions(dims, values.dtype), default, dtype=values.dtype)
    places = indices.reshape(-1, 1) if indices.ndim < 2 else indices
    _scatter(out, places, np.broadcast_to(values, places.shape[:1]), _assign)
    return out


shape_fn("InplaceAdd", "InplaceSub", "InplaceUpdate")(unchanged)


@kernel("DynamicPartition", flops=free)
def dynamic_partition(node: Node, x: Array, partitions: Array) -> tuple[Array, ...]:
    """Distribute slices of x over several tensors."""
    count = node.attr_int("num_partitions")
    check_outputs(count)
    if x.shape[: partitions.ndim] != partitions.shape:
        message = f"partitions of shape {list(partitions.shape)} for {list(x.shape)}"
        raise ValueError(message)
    check_indices(partitions, count)
    rows = x.reshape(partitions.size, *x.shape[partitions.ndim :])
    sizes = np.bincount(partitions.reshape(-1), minlength=count)
    sorted_rows = rows[np.argsort(partitions, axis=None, kind="stable")]
    return tuple(np.split(sorted_rows, np.cumsum(sizes[:-1])))


@shape_fn("DynamicPartition")
def dynamic_partition_shape(args: ShapeArgs) -> OutputShapes:
    """Return parts of unknown length, with the data's dimensions behind the partitions' shape."""
    data, partitions = args.shapes[0], args.shapes[1]
    count = args.node.attr_int("num_partitions")
    if data is None or partitions is None:
        return [None] * count
    return [(UNKNOWN, *data[len(partitions) :])] * count


@kernel("DynamicStitch", "ParallelDynamicStitch", flops=free)
def dynamic_stitch(node: Node, *inputs: Array) -> Array:
    """Place slices of several tensors at indices; of two for one index, the later wins."""
    count = len(inputs) // 2
    indices, parts = inputs[:count], inputs[count:]
    same_type(node, *parts)
    rest = parts[0].shape[indices[0].ndim :]
    if any(p.shape != (*i.shape, *rest) for i, p in zip(indices, parts, strict=True)):
        message = "indices and data do not fit each other"
        raise ValueError(message)
    length = 1 + max((int(i.max()) for i in indices if i.size), default=-1)
    shape = dimensions(np.array([length, *rest]), parts[0].dtype)
    out = np.zeros(shape, dtype=parts[0].dtype)
    for places, part in zip(indices, parts, strict=True):
        check_indices(places, length)
        out[places] = part
    return out


@shape_fn("DynamicStitch", "ParallelDynamicStitch")
def dynamic_stitch_shape(args: ShapeArgs) -> OutputShapes:
    """Return one more row than the largest index, with the data's remaining dimensions."""
    count = args.node.attr_int("N")
    rest: TensorShape = None
    for index, data in zip(args.shapes[:count], args.shapes[count:], strict=True):
        if index is not None and data is not None:
            rest = merge(rest, data[len(index) :])
    indices = [args.integers(i) for i in range(count)]
    if rest is None:
        return [None]
    if None in indices:
        return [(UNKNOWN, *rest)]
    return [(max((i for listed in indices for i in listed or ()), default=-1) + 1, *rest)]
