"""Arithmetic on sparse tensors and their segments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.array.gathering import check_indices
from mobileprep.ops.arrays import axes_of, integers, same_type, scalar
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.numerics.allocation import check_allocation
from mobileprep.ops.shape_function import (
    UNKNOWN,
    ShapeArgs,
    at_least_rank,
    axis_index,
    merge_dim,
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


@kernel("SparseReduceMax", "SparseReduceSum")
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
def sparse_reduce_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return the dense shape without the reduced axes, or with size 1 for them."""
    shape, axes = args.integers(2), args.integers(3)
    if shape is None or axes is None:
        return [None]
    reduced = {axis_index(a, len(shape)) for a in axes}
    if args.node.attr_bool("keep_dims", False):
        return [tuple(1 if i in reduced else n for i, n in enumerate(shape))]
    return [tuple(n for i, n in enumerate(shape) if i not in reduced)]


@flop_rule("SparseReduceMax", "SparseReduceSum")
def by_values_flops(sizes: Sizes) -> float:
    """Count one operation for each explicit element."""
    return sizes.input_elements(1)


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
def sparse_matmul_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return the rows of the sparse by the columns of the dense matrix."""
    lhs, rhs = with_rank(args.as_shape(2), 2), with_rank(args.shapes[3], 2)
    rows, inner = reversed(lhs) if args.node.attr_bool("adjoint_a", False) else lhs
    other, columns = reversed(rhs) if args.node.attr_bool("adjoint_b", False) else rhs
    merge_dim(inner, other)
    return [(rows, columns)]


@flop_rule("SparseTensorDenseMatMul")
def sparse_matmul_flops(sizes: Sizes) -> float:
    """Count a product and a sum for each explicit element and each column."""
    return 2 * sizes.input_elements(1) * sizes.output()[1]


@kernel(*_ELEMENTWISE)
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
def sparse_dense_elementwise_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return a value for each explicit element."""
    return [with_rank(args.shapes[0], 2)[:1]]


flop_rule("SparseDenseCwiseAdd", "SparseDenseCwiseDiv", "SparseDenseCwiseMul")(by_values_flops)


@kernel("SparseSoftmax")
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


@shape_fn("SparseSoftmax")
def sparse_softmax_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return a value for each explicit element."""
    return [with_rank(args.shapes[1], 1)]


@flop_rule("SparseSoftmax")
def sparse_softmax_flops(sizes: Sizes) -> float:
    """Count as for a dense softmax, for each explicit element."""
    return 5 * sizes.input_elements(1)


@kernel("SparseSegmentMean", "SparseSegmentSqrtN", "SparseSegmentSum")
def sparse_segment(node: Node, x: Array, indices: Array, ids: Array) -> Array:
    """Combine selected rows by segment, up to the highest segment.

    Args:
        node: its op selects the sum, the mean, or the sum divided by the root of the number of
            rows.

    Returns:
        [segments, ...], 0 for a segment without rows.
    """
    return _combined(node, x, indices, ids, int(ids[-1]) + 1 if ids.size else 0)


@shape_fn("SparseSegmentMean", "SparseSegmentSqrtN", "SparseSegmentSum")
def sparse_segments_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return a row for each segment, in the shape of the data's rows."""
    data = at_least_rank(args.shapes[0], 1)
    if data is None:
        return [None]
    segments = args.scalar(3) if args.node.op.endswith("NumSegments") else None
    return [(UNKNOWN if segments is None else segments, *data[1:])]


@flop_rule("SparseSegmentSum")
def segment_sum_flops(sizes: Sizes) -> float:
    """Count one operation for each element of the selected rows."""
    rows = sizes.input(0)[0]
    return sizes.input_elements(1) * sizes.input_elements() / rows if rows else 0


@flop_rule("SparseSegmentMean", "SparseSegmentSqrtN")
def segment_mean_flops(sizes: Sizes) -> float:
    """Count the sums, and a quotient for each output."""
    return segment_sum_flops(sizes) + sizes.output_elements()


def _combined(node: Node, x: Array, indices: Array, ids: Array, count: int) -> Array:
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


@kernel(
    "SparseSegmentMeanWithNumSegments",
    "SparseSegmentSqrtNWithNumSegments",
    "SparseSegmentSumWithNumSegments",
)
def sparse_segment_of(node: Node, x: Array, indices: Array, ids: Array, count: Array) -> Array:
    """Combine rows by segment, with a fixed number of segments; those without rows are 0."""
    return _combined(node, x, indices, ids, scalar(count))


shape_fn(
    "SparseSegmentMeanWithNumSegments",
    "SparseSegmentSqrtNWithNumSegments",
    "SparseSegmentSumWithNumSegments",
)(sparse_segments_shape)
flop_rule("SparseSegmentSumWithNumSegments")(segment_sum_flops)
flop_rule("SparseSegmentMeanWithNumSegments", "SparseSegmentSqrtNWithNumSegments")(
    segment_mean_flops
)


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
