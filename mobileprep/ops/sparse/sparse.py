"""Arithmetic on sparse tensors and their segments, and rearranging them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mobileprep.errors import UnsupportedError
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.array.gathering import check_indices
from mobileprep.ops.arrays import axes_of, axis_of, check_allocation, integers, same_type, scalar
from mobileprep.ops.kernel import Sizes, flop_rule, free, kernel, per_input
from mobileprep.ops.math.products import product_shape
from mobileprep.ops.math.reduce import without_axes
from mobileprep.ops.numerics.hashes import combined_fingerprints, fingerprint64
from mobileprep.ops.numerics.texts import texts
from mobileprep.ops.ragged.ragged import places_within
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    add_dims,
    at_least_rank,
    input_with_rank,
    merge_dim,
    shape_fn,
    sparse_matrix,
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


@kernel("SparseReorder", flops=free)
def sparse_reorder(node: Node, indices: Array, values: Array, dims: Array) -> tuple[Array, Array]:
    """Sort indices and values in row-major order."""
    sparse_shape(indices, dims, values)
    order = in_order(indices)
    return indices[order], values[order]


@shape_fn("SparseReorder")
def sparse_reorder_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of the indices and of the values."""
    return [args.shapes[0], args.shapes[1]]


@kernel("SparseReshape", flops=free)
def sparse_reshape(node: Node, indices: Array, dims: Array, new_dims: Array) -> tuple[Array, Array]:
    """Return the indices of the elements in another shape; one dimension may be -1."""
    shape = sparse_shape(indices, dims)
    target = _completed(integers(new_dims), math.prod(shape))
    place = flat_places(indices, shape)
    columns = []
    for extent in reversed(target):
        columns.append(place % max(extent, 1))
        place = place // max(extent, 1)
    out = np.empty((len(indices), len(target)), np.int64)
    for axis, column in enumerate(reversed(columns)):
        out[:, axis] = column
    return out, np.array(target, np.int64)


@shape_fn("SparseReshape")
def sparse_reshape_shape(args: ShapeArgs) -> OutputShapes:
    """Return as many indices, with the new rank."""
    count = with_rank(args.shapes[0], 2)[0]
    rank = with_rank(args.shapes[2], 1)[0]
    return [(count, rank), (rank,)]


def _completed(target: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Replace -1 in a shape with the size that the number of elements implies."""
    product = math.prod(d for d in target if d != -1)
    if target.count(-1) == 1 and product > 0 and size % product == 0:
        return tuple(size // product if d == -1 else d for d in target)
    if min(target, default=0) < 0 or product != size:
        message = f"{size} elements do not fill the shape {list(target)}"
        raise ValueError(message)
    return target


@kernel("SparseFillEmptyRows", flops=free)
def sparse_fill_empty_rows(
    node: Node, indices: Array, values: Array, dims: Array, default: Array
) -> tuple[Array, Array, Array, Array]:
    """Add a default at the beginning of each empty row of a matrix.

    Returns:
        The indices and the values in the order of rows, which rows [rows] were empty, and the new
        position of each input element.
    """
    same_type(node, values, default)
    shape = sparse_shape(indices, dims, values)
    rows = shape[0] if shape else 0
    check_allocation((rows, len(shape)), indices.dtype)
    empty = np.ones(rows, dtype=bool)
    empty[indices[:, 0]] = False
    added = np.zeros((int(empty.sum()), len(shape)), indices.dtype)
    added[:, 0] = np.flatnonzero(empty)
    together = np.concatenate([indices, added])
    order = np.argsort(together[:, 0], kind="stable")
    filled = np.concatenate([values, np.broadcast_to(default, len(added))])
    went = np.empty(len(order), np.int64)
    went[order] = np.arange(len(order))
    return together[order], filled[order], empty, went[: len(indices)]


@shape_fn("SparseFillEmptyRows")
def sparse_fill_empty_rows_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of indices, values, a flag for each row, and element positions."""
    count, rank = with_rank(args.shapes[0], 2)
    rows = args.as_shape(2)
    return [(UNKNOWN, rank), (UNKNOWN,), (rows[0] if rows else UNKNOWN,), (count,)]


@kernel("SparseSlice", flops=free)
def sparse_slice(
    node: Node, indices: Array, values: Array, dims: Array, start: Array, size: Array
) -> tuple[Array, Array, Array]:
    """Slice a sparse tensor with a box, which may extend beyond its end."""
    shape = sparse_shape(indices, dims, values)
    begin, extent = np.array(integers(start), np.int64), np.array(integers(size), np.int64)
    if len(begin) != len(shape) or len(extent) != len(shape) or min(*begin, *extent, 0) < 0:
        message = f"a box at {begin.tolist()} of {extent.tolist()} in {len(shape)} axes"
        raise ValueError(message)
    cut = np.clip(np.array(shape, np.int64) - begin, 0, extent)
    inside = ((indices >= begin) & (indices - begin < cut)).all(axis=1)
    return indices[inside] - begin, values[inside], cut


@shape_fn("SparseSlice")
def sparse_slice_shape(args: ShapeArgs) -> OutputShapes:
    """Return an unknown number of elements, of the same rank."""
    axes = with_rank(args.shapes[2], 1)[0]
    return [(UNKNOWN, axes), (UNKNOWN,), (axes,)]


@kernel("SparseConcat", flops=free)
def sparse_concat(node: Node, *inputs: Array) -> tuple[Array, Array, Array]:
    """Concatenate sparse tensors along an axis, elements in row-major order."""
    count = node.attr_int("N")
    indices, values, dims = inputs[:count], inputs[count : 2 * count], inputs[2 * count :]
    same_type(node, *values)
    shapes = [sparse_shape(*part) for part in zip(indices, dims, values, strict=True)]
    axis = axis_of(node.attr_int("concat_dim"), len(shapes[0]))
    if any(s[:axis] + s[axis + 1 :] != shapes[0][:axis] + shapes[0][axis + 1 :] for s in shapes):
        message = f"the shapes {[list(s) for s in shapes]} differ on axes other than {axis}"
        raise ValueError(message)
    extents = np.array([s[axis] for s in shapes], np.int64)
    offsets = np.cumsum(extents) - extents
    together = np.concatenate(indices)
    together[:, axis] += np.repeat(offsets, [len(part) for part in indices])
    order = in_order(together)
    shape = np.array(shapes[0], np.int64)
    shape[axis] = extents.sum()
    return together[order], np.concatenate(values)[order], shape


@shape_fn("SparseConcat")
def sparse_concat_shape(args: ShapeArgs) -> OutputShapes:
    """Return the elements of all parts."""
    count = args.node.attr_int("N")
    elements, axes, rank = 0, UNKNOWN, UNKNOWN
    for indices, values, dims in zip(
        *(args.shapes[i * count :][:count] for i in range(3)), strict=True
    ):
        rows, columns = with_rank(indices, 2)
        elements = add_dims(elements, merge_dim(rows, with_rank(values, 1)[0]))
        axes = merge_dim(axes, columns)
        rank = merge_dim(rank, with_rank(dims, 1)[0])
    return [(elements, axes), (elements,), (rank,)]


_INT64 = np.dtype(np.int64)


_LARGEST = np.iinfo(np.int64).max


@kernel("SparseCross", shape=sparse_matrix, flops=free)
def sparse_cross(node: Node, *inputs: Array) -> tuple[Array, Array, Array]:
    """Compute hashed crosses of features as a sparse matrix; the last feature varies fastest.

    Args:
        node: with ``num_buckets`` (0 for all numbers), ``hash_key``, and ``hashed_output``, which
            must be set.
        inputs: the indices of N sparse matrices [batch, any], their values and shapes, and then
            dense matrices [batch, any]; strings or integers.
    """
    if not node.attr_bool("hashed_output"):
        message = f"node {node.name!r} ({node.op}) joins strings instead of hashing them"
        raise UnsupportedError(message, "use a cross of features with a number of buckets")
    buckets = node.attr_int("num_buckets")
    if buckets < 0:
        message = f"there cannot be {buckets} buckets"
        raise ValueError(message)
    columns, batch = _columns(node, inputs)
    counts = np.array([np.diff(starts) for _, starts in columns], np.int64)
    if math.prod(int(c.max(initial=0)) for c in counts) > _LARGEST:
        message = "a row has more combinations than can be counted"
        raise ValueError(message)
    crosses = counts.prod(axis=0)
    check_allocation((int(crosses.sum(dtype=np.float64)), 2), _INT64)
    rows, within = np.repeat(np.arange(batch), crosses), places_within(crosses)
    hashes = np.full(len(rows), node.attr_int("hash_key") % (1 << 64), np.uint64)
    rest, chosen = within, []
    for (values, starts), count in zip(reversed(columns), counts[::-1], strict=True):
        chosen.append(values[starts[rows] + rest % count[rows]])
        rest = rest // count[rows]
    for values in reversed(chosen):
        hashes = combined_fingerprints(hashes, values)
    values = (hashes % np.uint64(buckets or _LARGEST)).astype(np.int64)
    shape = np.array([batch, crosses.max(initial=0)], np.int64)
    return np.stack([rows, within], axis=1), values, shape


def _columns(node: Node, inputs: tuple[Array, ...]) -> tuple[list[tuple[Array, Array]], int]:
    """Return the numbers of each feature with their row splits, and the number of rows."""
    count = node.attr_int("N")
    indices, values, dims = inputs[:count], inputs[count : 2 * count], inputs[2 * count : 3 * count]
    dense = inputs[3 * count :]
    heights = {integers(d)[0] for d in dims} | {len(x) for x in dense}
    if len(heights) != 1 or any(x.ndim != 2 for x in dense):
        message = "features to cross must be matrices with equally many rows"
        raise ValueError(message)
    batch = heights.pop()
    check_allocation((batch,), _INT64)
    columns = []
    for where, x, shape in zip(indices, values, dims, strict=True):
        if len(sparse_shape(where, shape, x)) != 2 or (np.diff(where[:, 0]) < 0).any():
            message = "a sparse feature to cross is not a matrix with sorted rows"
            raise ValueError(message)
        columns.append((_numbers(x), np.searchsorted(where[:, 0], np.arange(batch + 1))))
    columns += [(_numbers(x.ravel()), np.arange(batch + 1) * x.shape[1]) for x in dense]
    return columns, batch


def _numbers(values: Array) -> Array:
    if values.dtype.hasobject:
        return fingerprint64(texts(values))
    return values.astype(np.int64).view(np.uint64)
