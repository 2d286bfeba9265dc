"""Arithmetic on sparse tensors and their segments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.array.gathering import check_indices
from mobileprep.ops.arrays import axes_of, integers, same_type, scalar
from mobileprep.ops.cost import Sizes, flop_rule, per_input
from mobileprep.ops.kernel import kernel
from mobileprep.ops.math.products import product_shape
from mobileprep.ops.math.reduce import without_axes
from mobileprep.ops.numerics.allocation import check_allocation
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    at_least_rank,
    input_with_rank,
    shape_fn,
    with_rank,
)

_MOST = (1 << 63) - 1


def sparse_shape(indices: Array, shape: Array, values: Array | None = None) -> tuple[int, ...]:
    """Check the parts of a sparse tensor and return its dense shape.

    Args:
        indices: [count, axes] integers.
        shape: [axes] integers.
        values: [count], if they are to be checked.
    """
    dims = integers(shape)
    if indices.ndim != 2 or shape.ndim != 1 or indices.shape[1] != len(dims):
        message = f"indices of shape {list(indices.shape)} into {len(dims)} axes"
        raise ValueError(message)
    if values is not None and values.shape != (len(indices),):
        message = f"{len(indices)} indices for values of shape {list(values.shape)}"
        raise ValueError(message)
    if min(dims, default=0) < 0 or math.prod(dims) > _MOST:
        message = f"{list(dims)} is not a shape"
        raise ValueError(message)
    for axis, extent in enumerate(dims):
        check_indices(indices[:, axis], extent)
    return dims


def in_order(indices: Array) -> Array:
    """Return the row-major order of indices; equal ones keep their order."""
    if not indices.shape[1]:
        return np.arange(len(indices))
    return np.lexsort(indices.T[::-1])


def flat_places(indices: Array, shape: tuple[int, ...]) -> Array:
    """Return the position of each index in row-major order, int64."""
    place = np.zeros(len(indices), np.int64)
    for axis, extent in enumerate(shape):
        place = place * extent + indices[:, axis]
    return place


_ELEMENTWISE: dict[str, Callable[[Array, Array], Any]] = {
    "SparseDenseCwiseAdd": np.add,
    "SparseDenseCwiseDiv": np.divide,
    "SparseDenseCwiseMul": np.multiply,
}


# One operation for each explicit element.
@kernel("SparseReduceMax", "SparseReduceSum", flops=per_input(1, index=1))
def sparse_reduce(node: Node, indices: Array, values: Array, dims: Array, axes: Array) -> Array:
    """Reduce a sparse tensor's elements along axes to their sum or maximum, 0 if there are none."""
    shape = sparse_shape(indices, dims, values)
    reduced = axes_of(axes, len(shape))
    kept_axes = [a for a in range(len(shape)) if a not in reduced]
    rest = tuple(shape[a] for a in kept_axes)
    check_allocation(rest, values.dtype)
    out = np.zeros(math.prod(rest), values.dtype)
    place = flat_places(indices[:, kept_axes], rest)
    if len(place):
        order = np.argsort(place, kind="stable")
        first = np.flatnonzero(np.diff(place[order], prepend=-1))
        combine = np.add if node.op == "SparseReduceSum" else np.maximum
        out[place[order][first]] = combine.reduceat(values[order], first)
    if node.attr_bool("keep_dims", False):
        rest = tuple(1 if a in reduced else n for a, n in enumerate(shape))
    return out.reshape(rest)


@shape_fn("SparseReduceMax", "SparseReduceSum")
def sparse_reduce_shape(args: ShapeArgs) -> OutputShapes:
    """Return the dense shape without the reduced axes, or with size 1 for them."""
    shape, axes = args.integers(2), args.integers(3)
    if shape is None or axes is None:
        return [None]
    return [without_axes(args.node, shape, axes)]


@kernel("SparseTensorDenseMatMul")
def sparse_dense_matmul(
    node: Node, indices: Array, values: Array, dims: Array, other: Array
) -> Array:
    """Multiply a sparse and a dense matrix, each optionally as its adjoint."""
    same_type(node, values, other)
    shape = sparse_shape(indices, dims, values)
    if len(shape) != 2 or other.ndim != 2:
        message = "two matrices are needed"
        raise ValueError(message)
    rows, columns = indices[:, 0], indices[:, 1]
    if node.attr_bool("adjoint_a", False):
        rows, columns, shape, values = columns, rows, shape[::-1], values.conj()
    if node.attr_bool("adjoint_b", False):
        other = other.conj().T
    if shape[1] != len(other):
        message = f"a matrix of shape {list(shape)} times one of {list(other.shape)}"
        raise ValueError(message)
    check_allocation((shape[0], other.shape[1]), values.dtype)
    check_allocation((len(values), other.shape[1]), values.dtype)
    order = np.argsort(rows, kind="stable")
    terms = values[order, np.newaxis] * other[columns[order]]
    return summed(terms, rows[order], shape[0])


@shape_fn("SparseTensorDenseMatMul")
def sparse_matmul_shape(args: ShapeArgs) -> OutputShapes:
    """Return the rows of the sparse by the columns of the dense matrix."""
    lhs, rhs = with_rank(args.as_shape(2), 2), with_rank(args.shapes[3], 2)
    return [product_shape(args.node, lhs, rhs, ("adjoint_a", "adjoint_b"))]


@flop_rule("SparseTensorDenseMatMul")
def sparse_matmul_flops(sizes: Sizes) -> float:
    """Count a product and a sum for each explicit element and each column."""
    return 2 * sizes.input_elements(1) * sizes.output()[1]


@kernel(*_ELEMENTWISE, flops=per_input(1, index=1))
def sparse_dense_elementwise(
    node: Node, indices: Array, values: Array, dims: Array, other: Array
) -> Array:
    """Combine the values of a sparse tensor with the dense elements at their indices.

    The dense tensor is broadcast to the sparse one, never the reverse.
    """
    same_type(node, values, other)
    shape = sparse_shape(indices, dims, values)
    # A view: no array of the sparse tensor's shape is allocated.
    spread = np.broadcast_to(other, shape)
    there = spread[tuple(indices.T)] if shape else spread.reshape(-1)
    return np.asarray(_ELEMENTWISE[node.op](values, there), dtype=values.dtype)


@shape_fn(*_ELEMENTWISE)
def sparse_dense_elementwise_shape(args: ShapeArgs) -> OutputShapes:
    """Return a value for each explicit element."""
    return [with_rank(args.shapes[0], 2)[:1]]


# As for a dense softmax, for each explicit element.
@kernel("SparseSoftmax", shape=input_with_rank(1, index=1), flops=per_input(5, index=1))
def sparse_softmax(node: Node, indices: Array, values: Array, dims: Array) -> Array:
    """Compute the softmax of the explicit elements of each row along the last axis."""
    shape = sparse_shape(indices, dims, values)
    if not len(values):
        return values
    place = flat_places(indices[:, :-1], shape[:-1])
    order = in_order(place[:, np.newaxis])
    first = np.flatnonzero(np.diff(place[order], prepend=-1))
    lengths = np.diff(first, append=len(values))
    powers = np.exp(values[order] - np.repeat(np.maximum.reduceat(values[order], first), lengths))
    out = np.empty_like(values)
    out[order] = powers / np.repeat(np.add.reduceat(powers, first), lengths)
    return out


_SUMS = ("SparseSegmentSum", "SparseSegmentSumWithNumSegments")
_MEANS = (
    *("SparseSegmentMean", "SparseSegmentMeanWithNumSegments"),
    *("SparseSegmentSqrtN", "SparseSegmentSqrtNWithNumSegments"),
)


@kernel(*_SUMS, *_MEANS)
def sparse_segment(
    node: Node, x: Array, indices: Array, ids: Array, segments: Array | None = None
) -> Array:
    """Combine selected rows by segment.

    Args:
        node: its op selects the sum, the mean, or the sum divided by the root of the number of
            rows.
        segments: their number; without it, they end with the highest one.

    Returns:
        [segments, ...], 0 for a segment without rows.
    """
    last = int(ids[-1]) if ids.size else -1
    count = last + 1 if segments is None else scalar(segments)
    if x.ndim < 1 or indices.ndim != 1 or ids.shape != indices.shape or (np.diff(ids) < 0).any():
        message = "there must be an ascending segment for each chosen row"
        raise ValueError(message)
    check_indices(indices, len(x))
    check_indices(ids, count)
    check_allocation((len(indices), *x.shape[1:]), x.dtype)
    check_allocation((count,), np.dtype(np.int64))
    total = summed(x[indices], ids, count)
    rows = np.maximum(np.bincount(ids, minlength=count), 1).reshape(-1, *[1] * (x.ndim - 1))
    if node.op.startswith("SparseSegmentMean"):
        return (total / rows).astype(x.dtype)
    if node.op.startswith("SparseSegmentSqrtN"):
        return (total / np.sqrt(rows)).astype(x.dtype)
    return total


@shape_fn(*_SUMS, *_MEANS)
def sparse_segments_shape(args: ShapeArgs) -> OutputShapes:
    """Return a row for each segment, in the shape of the data's rows."""
    data = at_least_rank(args.shapes[0], 1)
    if data is None:
        return [None]
    segments = args.scalar(3) if args.node.op.endswith("NumSegments") else None
    return [(UNKNOWN if segments is None else segments, *data[1:])]


@flop_rule(*_SUMS)
def segment_sum_flops(sizes: Sizes) -> float:
    """Count one operation for each element of the selected rows."""
    rows = sizes.input(0)[0]
    return sizes.input_elements(1) * sizes.input_elements() / rows if rows else 0


@flop_rule(*_MEANS)
def segment_mean_flops(sizes: Sizes) -> float:
    """Count the sums, and a quotient for each output."""
    return segment_sum_flops(sizes) + sizes.output_elements()


_NARROW = 4


def summed(rows: Array, ids: Array, count: int) -> Array:
    """Sum the rows of each segment, 0 for segments without rows.

    Args:
        ids: the ascending segment of each row.
        count: number of segments.

    Returns:
        [count, ...] of the rows' type; narrow reals are added in single precision.
    """
    shape = (count, *rows.shape[1:])
    check_allocation(shape, rows.dtype)
    out = np.zeros(shape, rows.dtype)
    if rows.size:
        first = np.flatnonzero(np.diff(ids, prepend=-1))
        narrow = rows.dtype.kind not in "iub" and rows.dtype.itemsize < _NARROW
        wide = rows.astype(np.float32) if narrow else rows
        out[ids[first]] = np.add.reduceat(wide, first, axis=0).astype(rows.dtype)
    return out
