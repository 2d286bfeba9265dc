"""Scattering elements by index, and partitioning them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.array.gathering import check_indices
from mobileprep.ops.arrays import (
    check_outputs,
    dimensions,
    same_type,
)
from mobileprep.ops.cost import flop_rule, free, per_input
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    at_least_rank,
    merge,
    shape_fn,
    shape_in,
    unchanged,
)

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
