"""Ops that make, choose rows of, and flatten ragged tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.array.gathering import check_indices
from mobileprep.ops.arrays import check_allocation, same_type
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import two_vectors
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import UNKNOWN, at_least_rank, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.ragged.row_splits import checked_splits, places_within, splits_of
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("RaggedRange")
def ragged_range(node: Node, starts: Array, limits: Array, deltas: Array) -> tuple[Array, Array]:
    """Sequences of numbers, a row for each start, limit and step; scalars go with every row.

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


shape_fn("RaggedRange")(two_vectors)


@flop_rule("RaggedRange")
def ragged_range_flops(sizes: Sizes) -> float:
    """A product and a sum for each number."""
    return 2 * sizes.made(1)


def _lengths(first: Array, end: Array, step: Array) -> Array:
    """How many numbers each row has."""
    if first.dtype.kind == "f":
        count = np.ceil((end.astype(np.float64) - first) / step)
        if not np.isfinite(count).all():
            message = "a row would not end"
            raise ValueError(message)
    else:
        # Python's integers: differences of 64-bit numbers need more than 64 bits.
        rows = zip(first.tolist(), end.tolist(), step.tolist(), strict=True)
        count = np.array([float(-((s - e) // d)) for s, e, d in rows], np.float64)
    return np.maximum(count, 0)


@kernel("RaggedGather")
def ragged_gather(node: Node, *inputs: Array) -> tuple[Array, ...]:
    """Chosen rows of a ragged tensor.

    Args:
        node: the node.
        inputs: the row splits, outermost first; the values; the rows' indices, of any rank above 0.

    Returns:
        The row splits, of which those of the indices' own axes come first, and the values.
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
        known = checked_splits(splits, count)
        lengths = np.diff(known)[rows]
        check_allocation((int(lengths.sum()), *values.shape[1:]), values.dtype)
        rows = np.repeat(known[rows], lengths) + places_within(lengths)
        out.append(splits_of(lengths))
    return *(splits.astype(nested[0].dtype) for splits in out), values[rows]


@shape_fn("RaggedGather")
def ragged_gather_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Row splits, and values in rows like those given."""
    *nested, values, indices = args.shapes
    count = args.count() - 1
    for splits in nested:
        with_rank(splits, 1)
    with_rank(indices, count - len(nested) + 1)
    at_least_rank(values, 1)
    chosen = None if values is None else (UNKNOWN, *values[1:])
    return [*[(UNKNOWN,)] * count, chosen]


flop_rule("RaggedGather")(free)


@kernel("RaggedTensorToSparse")
def ragged_to_sparse(node: Node, *inputs: Array) -> tuple[Array, Array, Array]:
    """A ragged tensor's elements with their indices.

    Args:
        node: the node.
        inputs: the row splits, outermost first, and the values.
    """
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
def ragged_to_sparse_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Indices, values, and a shape of as many axes as the splits and the values have."""
    values = args.shapes[-1]
    rank = UNKNOWN if values is None else len(args.shapes) - 1 + len(values)
    return [(UNKNOWN, rank), (UNKNOWN,), (rank,)]


flop_rule("RaggedTensorToSparse")(free)
