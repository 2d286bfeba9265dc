"""The op that pads a ragged tensor to a dense one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.array.gathering import check_indices
from mobileprep.ops.arrays import check_allocation, integers, same_type, scalar
from mobileprep.ops.common_costs import free
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import merge, unknown_dims
from mobileprep.ops.kernel import kernel
from mobileprep.ops.ragged.row_splits import checked_splits
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

_FIRST, _IDS, _SPLITS = b"FIRST_DIM_SIZE", b"VALUE_ROWIDS", b"ROW_SPLITS"


@kernel("RaggedTensorToTensor")
def ragged_to_dense(
    node: Node, wanted: Array, values: Array, default: Array, *partitions: Array
) -> Array:
    """A dense tensor of a ragged one, padded with a default; what passes the shape is cut off.

    Args:
        node: with ``row_partition_types``, the kind of each partition.
        wanted: the shape, -1 for a dimension as large as need be; the scalar -1 for all.
        values: [values, ...].
        default: what broadcasts to one value.
        partitions: the first dimension and the row of each value, or row splits; outermost first.
    """
    same_type(node, values, default)
    kinds = node.attr_strings("row_partition_types")
    if len(kinds) != len(partitions) or not kinds or not values.ndim:
        message = "values, and a kind for each of at least one partition are needed"
        raise ValueError(message)
    count, levels = _levels(kinds, partitions, len(values))
    shape = _shape(wanted, count, levels, values)
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
def ragged_to_dense_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The wanted shape; where it leaves a size open, the values' own behind the rows."""
    values, wanted = args.shapes[1], args.as_shape(0)
    if values is None:
        return [wanted]
    kinds = args.node.attr_strings("row_partition_types")
    levels = len(kinds) - (kinds[:1] == (_FIRST,))
    return [merge(wanted, (*unknown_dims(levels + 1), *values[1:]))]


flop_rule("RaggedTensorToTensor")(free)


def _levels(
    kinds: Sequence[bytes], partitions: Sequence[Array], size: int
) -> tuple[int, list[tuple[Array, Array]]]:
    """The number of rows, and of each level the row of each child and its place within."""
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
        message = f"{size} values where the partitions tell of {count}"
        raise ValueError(message)
    return rows, levels


def _row_ids(kind: bytes, partition: Array, rows: int, size: int | None) -> Array:
    """The row of each child, ascending."""
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
    wanted: Array, rows: int, levels: Sequence[tuple[Array, Array]], values: Array
) -> tuple[int, ...]:
    needed = [rows, *(int(within.max(initial=-1)) + 1 for _, within in levels), *values.shape[1:]]
    asked = integers(wanted) if wanted.ndim else (-1,) * len(needed)
    if len(asked) != len(needed):
        message = f"the shape {list(asked)} for a ragged tensor of {len(needed)} axes"
        raise ValueError(message)
    shape = tuple(n if a < 0 else a for a, n in zip(asked, needed, strict=True))
    if shape[1 + len(levels) :] != values.shape[1:]:
        message = f"values of shape {list(values.shape)} do not fit the shape {list(asked)}"
        raise ValueError(message)
    return shape
