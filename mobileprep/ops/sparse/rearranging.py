"""Rearrangement and crossing of sparse tensors."""

from __future__ import annotations

import math

import numpy as np

from mobileprep.errors import UnsupportedError
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import axis_of, check_allocation, integers, same_type
from mobileprep.ops.cost import free
from mobileprep.ops.kernel import kernel
from mobileprep.ops.numerics.hashes import combined_fingerprints, fingerprint64
from mobileprep.ops.numerics.texts import texts
from mobileprep.ops.ragged.ragged import places_within
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    add_dims,
    merge_dim,
    shape_fn,
    sparse_matrix,
    with_rank,
)
from mobileprep.ops.sparse.math import flat_places, in_order, sparse_shape


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
