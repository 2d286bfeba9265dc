"""Ragged tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.array.gathering import check_indices
from mobileprep.ops.arrays import check_allocation, integers, same_type, scalar
from mobileprep.ops.kernel import Sizes, flop_rule, free, kernel
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    at_least_rank,
    merge,
    shape_fn,
    two_vectors,
    unknown_dims,
    with_rank,
)


def checked_splits(splits: Array, count: int) -> Array:
    """Return row splits as int64, after a check that they cover ``count`` values."""
    if splits.ndim != 1 or not splits.size:
        message = f"row splits of shape {list(splits.shape)} are none"
        raise ValueError(message)
    row_splits: Array = splits.astype(np.int64)
    if row_splits[0] != 0 or row_splits[-1] != count or (np.diff(row_splits) < 0).any():
        message = f"row splits do not ascend from 0 to {count}"
        raise ValueError(message)
    return row_splits


def splits_of(lengths: Array) -> Array:
    """Return the row splits of rows with given lengths, int64."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def places_within(lengths: Array) -> Array:
    """Return 0, 1, 2, ... for each row of the given length, one row after another."""
    splits = splits_of(lengths)
    places: Array = np.arange(splits[-1]) - np.repeat(splits[:-1], lengths)
    return places


@kernel("RaggedRange", shape=two_vectors)
def ragged_range(node: Node, starts: Array, limits: Array, deltas: Array) -> tuple[Array, Array]:
    """Create a row of numbers for each start, limit, and step; scalars are broadcast.

    Returns:
        The row splits, and the numbers of all rows.
    """
    same_type(node, starts, limits, deltas)
    if max(starts.ndim, limits.ndim, deltas.ndim) > 1:
        message = "starts, limits and steps must be vectors or scalars"
        raise ValueError(message)
    first, end, step = np.broadcast_arrays(*map(np.atleast_1d, (starts, limits, deltas)))
    if not step.all():
        message = "a step is 0"
        raise ValueError(message)
    lengths = _lengths(first, end, step)
    check_allocation([int(lengths.sum(dtype=np.float64))], starts.dtype)
    lengths = lengths.astype(np.int64)
    steps = places_within(lengths).astype(starts.dtype)
    values = np.repeat(first, lengths) + steps * np.repeat(step, lengths)
    return splits_of(lengths).astype(node.attr_dtype("Tsplits", DType.INT64).numpy), values


@flop_rule("RaggedRange")
def ragged_range_flops(sizes: Sizes) -> float:
    """Count a product and a sum for each number."""
    return 2 * sizes.output_elements(1)


def _lengths(first: Array, end: Array, step: Array) -> Array:
    """Return the number of elements of each row."""
    if first.dtype.kind == "f":
        count = np.ceil((end.astype(np.float64) - first) / step)
        if not np.isfinite(count).all():
            message = "a row would not end"
            raise ValueError(message)
    else:
        # Python integers: differences of 64-bit numbers need more than 64 bits.
        rows = zip(first.tolist(), end.tolist(), step.tolist(), strict=True)
        count = np.array([float(-((s - e) // d)) for s, e, d in rows], np.float64)
    return np.maximum(count, 0)


@kernel("RaggedGather", flops=free)
def ragged_gather(node: Node, *inputs: Array) -> tuple[Array, ...]:
    """Gather rows of a ragged tensor.

    Args:
        inputs: the row splits, outermost first; the values; the rows' indices, of any rank above 0.

    Returns:
        The row splits, starting with those of the indices' own axes, and the values.
    """
    *nested, values, indices = inputs
    if not indices.ndim or not nested or not values.ndim:
        message = "row splits, values, and indices of rank 1 or above are needed"
        raise ValueError(message)
    out = [
        np.arange(math.prod(indices.shape[:axis]) + 1) * indices.shape[axis]
        for axis in range(1, indices.ndim)
    ]
    rows: Array = indices.ravel().astype(np.int64)
    check_indices(rows, len(nested[0]) - 1)
    for splits, count in zip(nested, [*(len(s) - 1 for s in nested[1:]), len(values)], strict=True):
        row_splits = checked_splits(splits, count)
        lengths = np.diff(row_splits)[rows]
        check_allocation((int(lengths.sum()), *values.shape[1:]), values.dtype)
        rows = np.repeat(row_splits[rows], lengths) + places_within(lengths)
        out.append(splits_of(lengths))
    return *(splits.astype(nested[0].dtype) for splits in out), values[rows]


@shape_fn("RaggedGather")
def ragged_gather_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of row splits, and of values in rows like the input's."""
    *nested, values, indices = args.shapes
    count = args.count() - 1
    for splits in nested:
        with_rank(splits, 1)
    with_rank(indices, count - len(nested) + 1)
    at_least_rank(values, 1)
    chosen = None if values is None else (UNKNOWN, *values[1:])
    return [*[(UNKNOWN,)] * count, chosen]


@kernel("RaggedTensorToSparse", flops=free)
def ragged_to_sparse(node: Node, *inputs: Array) -> tuple[Array, Array, Array]:
    """Return a ragged tensor's elements with their indices."""
    *nested, values = inputs
    if not values.ndim or not nested:
        message = "row splits and values of rank 1 or above are needed"
        raise ValueError(message)
    columns = [np.arange(len(nested[0]) - 1)]
    dims = [len(nested[0]) - 1]
    for splits, count in zip(nested, [*(len(s) - 1 for s in nested[1:]), len(values)], strict=True):
        lengths = np.diff(checked_splits(splits, count))
        columns = [np.repeat(column, lengths) for column in columns]
        columns.append(places_within(lengths))
        dims.append(int(lengths.max(initial=0)))
    inner = values.shape[1:]
    check_allocation((values.size, len(dims) + len(inner)), np.dtype(np.int64))
    rest = np.indices(inner).reshape(len(inner), math.prod(inner)).T
    indices = np.empty((len(values), len(rest), len(dims) + len(inner)), np.int64)
    indices[..., : len(dims)] = np.stack(columns, axis=1)[:, np.newaxis]
    indices[..., len(dims) :] = rest
    shape = np.array([*dims, *inner], np.int64)
    return indices.reshape(-1, len(shape)), values.reshape(-1), shape


@shape_fn("RaggedTensorToSparse")
def ragged_to_sparse_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of indices, values, and a shape with the total rank."""
    values = args.shapes[-1]
    rank = UNKNOWN if values is None else len(args.shapes) - 1 + len(values)
    return [(UNKNOWN, rank), (UNKNOWN,), (rank,)]


_FIRST, _IDS, _SPLITS = b"FIRST_DIM_SIZE", b"VALUE_ROWIDS", b"ROW_SPLITS"


@kernel("RaggedTensorToTensor", flops=free)
def ragged_to_dense(
    node: Node, target: Array, values: Array, default: Array, *partitions: Array
) -> Array:
    """Convert a ragged tensor to a dense one, padded with a default, and truncated to the shape.

    Args:
        target: the shape, -1 for a dimension as large as necessary; the scalar -1 for all.
        partitions: the first dimension and the row of each value, or row splits; outermost first.
    """
    same_type(node, values, default)
    kinds = node.attr_strings("row_partition_types")
    if len(kinds) != len(partitions) or not kinds or not values.ndim:
        message = "values, and a kind for each of at least one partition are needed"
        raise ValueError(message)
    count, levels = _levels(kinds, partitions, len(values))
    shape = _shape(target, count, levels, values)
    check_allocation(shape, values.dtype)
    place = np.arange(count)
    place[place >= shape[0]] = -1
    for extent, (rows, within) in zip(shape[1:], levels, strict=False):
        parent = place[rows]
        place = np.where((parent >= 0) & (within < extent), parent * extent + within, -1)
    inner = shape[1 + len(levels) :]
    out = np.empty((math.prod(shape[: 1 + len(levels)]), *inner), values.dtype)
    out[:] = np.broadcast_to(default, inner) if default.ndim else default
    out[place[place >= 0]] = values[place >= 0]
    return out.reshape(shape)


@shape_fn("RaggedTensorToTensor")
def ragged_to_dense_shape(args: ShapeArgs) -> OutputShapes:
    """Return the target shape, with unknown sizes from the values' inner dimensions."""
    values, target = args.shapes[1], args.as_shape(0)
    if values is None:
        return [target]
    kinds = args.node.attr_strings("row_partition_types")
    levels = len(kinds) - (kinds[:1] == (_FIRST,))
    return [merge(target, (*unknown_dims(levels + 1), *values[1:]))]


def _levels(
    kinds: Sequence[bytes], partitions: Sequence[Array], size: int
) -> tuple[int, list[tuple[Array, Array]]]:
    """Return the number of rows, and for each level, each child's row and its position in it."""
    if kinds[0] == _FIRST:
        rows = scalar(partitions[0])
        kinds, partitions = kinds[1:], partitions[1:]
    else:
        rows = len(partitions[0]) - 1 if partitions[0].ndim else -1
    check_allocation([rows], np.dtype(np.int64))
    count, levels = rows, []
    for level, (kind, partition) in enumerate(zip(kinds, partitions, strict=True)):
        is_last = level == len(kinds) - 1
        ids = _row_ids(kind, partition, count, size if is_last else None)
        starts = np.searchsorted(ids, ids, side="left")
        levels.append((ids, np.arange(len(ids)) - starts))
        count = len(ids)
    if count != size:
        message = f"{size} values where the partitions declare {count}"
        raise ValueError(message)
    return rows, levels


def _row_ids(kind: bytes, partition: Array, rows: int, size: int | None) -> Array:
    """Return the row of each child, ascending."""
    if kind == _IDS:
        ids = np.array(integers(partition), np.int64)
        check_indices(ids, rows)
        if (np.diff(ids) < 0).any():
            message = "the rows of values do not ascend"
            raise ValueError(message)
        return ids
    if kind != _SPLITS or partition.shape != (rows + 1,):
        message = f"a partition {kind.decode(errors='replace')} of {partition.size} for {rows} rows"
        raise ValueError(message)
    children = int(partition[-1]) if size is None else size
    check_allocation([children], np.dtype(np.int64))
    return np.repeat(np.arange(rows), np.diff(checked_splits(partition, children)))


def _shape(
    target: Array, rows: int, levels: Sequence[tuple[Array, Array]], values: Array
) -> tuple[int, ...]:
    needed = [rows, *(int(within.max(initial=-1)) + 1 for _, within in levels), *values.shape[1:]]
    sizes = integers(target) if target.ndim else (-1,) * len(needed)
    if len(sizes) != len(needed):
        message = f"the shape {list(sizes)} for a ragged tensor of {len(needed)} axes"
        raise ValueError(message)
    shape = tuple(n if a < 0 else a for a, n in zip(sizes, needed, strict=True))
    if shape[1 + len(levels) :] != values.shape[1:]:
        message = f"values of shape {list(values.shape)} do not fit the shape {list(sizes)}"
        raise ValueError(message)
    return shape
