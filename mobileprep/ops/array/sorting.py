"""Sorting, searching, and counting."""

from __future__ import annotations

from typing import Any

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import axis_of, integers, numpy_attr, scalar
from mobileprep.ops.kernel import free, kernel, per_input
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    at_least_rank,
    shape_fn,
    two_vectors,
    unchanged,
    unknown_dims,
    with_rank,
)


@kernel("TopK", "TopKV2", flops=free)
def top_k(node: Node, x: Array, k: Array | None = None) -> tuple[Array, Array]:
    """Return the largest elements along the last axis and their indices; ties by lowest index."""
    count = node.attr_int("k") if k is None else scalar(k)
    if x.ndim < 1 or not 0 <= count <= x.shape[-1]:
        message = f"fewer than {count} elements along the last axis of {list(x.shape)}"
        raise ValueError(message)
    order = _descending(x)[..., :count]
    return np.take_along_axis(x, order, axis=-1), order.astype(
        numpy_attr(node, "index_type", DType.INT32)
    )


@shape_fn("TopK", "TopKV2")
def top_k_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape with its last dimension cut to k, twice."""
    k = args.scalar(1) if args.node.op == "TopKV2" else args.node.attr_int("k")
    shape = at_least_rank(args.shapes[0], 1)
    if shape is None:
        return [None, None]
    cut = (*shape[:-1], UNKNOWN if k is None else k)
    return [cut, cut]


def _descending(x: Array) -> Array:
    """Sort from the largest to the smallest, stably: reverse, sort, and read backward."""
    if x.shape[-1] == 0:
        return np.zeros(x.shape, dtype=np.int64)
    backwards = np.argsort(x[..., ::-1], axis=-1, kind="stable")
    order: Array = (x.shape[-1] - 1 - backwards)[..., ::-1]
    return order


@kernel("NthElement", flops=free)
def nth_element(node: Node, x: Array, n: Array) -> Array:
    """Return the n-th smallest (or largest) element along the last axis."""
    place = scalar(n)
    if x.ndim < 1 or not 0 <= place < x.shape[-1]:
        message = f"no element {place} along the last axis of {list(x.shape)}"
        raise ValueError(message)
    ordered = np.sort(x, axis=-1)
    return np.asarray(ordered[..., -1 - place if node.attr_bool("reverse", False) else place])


@shape_fn("NthElement")
def nth_element_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape without its last dimension."""
    shape = at_least_rank(args.shapes[0], 1)
    return [None if shape is None else shape[:-1]]


@kernel("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", flops=free)
def unique(node: Node, x: Array, axis: Array | None = None) -> tuple[Array, ...]:
    """Return the distinct elements in order of first occurrence, and the index of each element.

    Args:
        axis: the axis whose slices are compared; without it or if empty, x must be a vector.
    """
    named = () if axis is None else integers(axis)
    if not named and x.ndim != 1:
        message = f"expected a vector, found the shape {list(x.shape)}"
        raise ValueError(message)
    along = axis_of(named[0], x.ndim) if named else 0
    if x.ndim == 1:
        keys = x.tolist()
    else:
        keys = [tuple(part.ravel().tolist()) for part in np.moveaxis(x, along, 0)]
    places: dict[Any, int] = {}
    which = [places.setdefault(key, len(places)) for key in keys]
    firsts = np.unique(np.array(which, dtype=np.int64), return_index=True)[1]
    kind = numpy_attr(node, "out_idx", DType.INT32)
    outputs = (np.take(x, firsts, axis=along), np.array(which, dtype=kind))
    if "Counts" not in node.op:
        return outputs
    return (*outputs, np.bincount(which, minlength=len(places)).astype(kind))


@shape_fn("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2")
def unique_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of the distinct elements, the index of each element, and the counts."""
    shape = args.shapes[0]
    counts = [(UNKNOWN,)] * (args.count() - 2)
    if args.node.op.endswith("V2"):
        return [None if shape is None else unknown_dims(len(shape)), (UNKNOWN,), *counts]
    return [(UNKNOWN,), shape, *counts]


@kernel("ListDiff", shape=two_vectors, flops=free)
def list_diff(node: Node, x: Array, y: Array) -> tuple[Array, Array]:
    """Return the elements of x that are not in y, and their indices."""
    if x.ndim != 1 or y.ndim != 1:
        message = "two vectors are needed"
        raise ValueError(message)
    excluded = set(y.tolist())
    indices = [i for i, value in enumerate(x.tolist()) if value not in excluded]
    return x[np.array(indices, dtype=np.int64)], np.array(
        indices, dtype=numpy_attr(node, "out_idx", DType.INT32)
    )


@kernel("InTopK", "InTopKV2", flops=per_input(1))
def in_top_k(node: Node, predictions: Array, targets: Array, k: Array | None = None) -> Array:
    """Return whether each row's target is among its k largest; ties at the limit all count."""
    rows, classes = predictions.shape
    if targets.shape != (rows,):
        message = f"{list(targets.shape)} targets for {rows} rows"
        raise ValueError(message)
    valid = (targets >= 0) & (targets < classes)
    own = np.take_along_axis(predictions, np.where(valid, targets, 0).reshape(-1, 1), axis=1)
    better = np.count_nonzero(predictions > own, axis=1)
    sound = valid & np.isfinite(own[:, 0]) & np.isfinite(predictions).all(axis=1)
    return np.asarray(sound & (better < (node.attr_int("k") if k is None else scalar(k))))


@shape_fn("InTopK", "InTopKV2")
def in_top_k_shape(args: ShapeArgs) -> OutputShapes:
    """Return a vector with an element for each prediction."""
    rows = with_rank(args.shapes[0], 2)[0]
    targets = with_rank(args.shapes[1], 1)[0]
    return [(max(rows, targets),)]


@kernel("LowerBound", "UpperBound", flops=free)
def bound(node: Node, ordered: Array, values: Array) -> Array:
    """Return the insertion points of values into the ascending rows of a matrix."""
    rows = [
        np.searchsorted(a, v, side="left" if node.op == "LowerBound" else "right")
        for a, v in zip(ordered, values, strict=True)
    ]
    return np.array(rows, dtype=numpy_attr(node, "out_type", DType.INT32)).reshape(values.shape)


@shape_fn("LowerBound", "UpperBound")
def bound_shape(args: ShapeArgs) -> OutputShapes:
    """Return an index for each value."""
    with_rank(args.shapes[0], 2)
    with_rank(args.shapes[1], 2)
    return [args.shapes[1]]


@kernel("Bucketize", shape=unchanged, flops=free)
def bucketize(node: Node, x: Array) -> Array:
    """Return the number of boundaries (an attribute) that are not above each element."""
    boundaries = np.array(node.attr_floats("boundaries", ()), dtype=np.float32)
    return np.asarray(np.searchsorted(boundaries, x, side="right"), dtype=np.int32)
