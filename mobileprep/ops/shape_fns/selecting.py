"""Shapes of ops that read parts of tensors, or put parts into them."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.dims import (
    UNKNOWN,
    ShapeConflictError,
    at_least_rank,
    axis_index,
    concatenate,
    unknown_dims,
    with_rank,
)
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn


@shape_fn("Slice")
def slice_(args: ShapeArgs) -> Sequence[TensorShape]:
    """The given sizes; -1 for what is left behind the beginning."""
    shape, begin, size = args.shapes[0], args.integers(1), args.as_shape(2)
    ranks = [len(s) for s in (shape, begin, size) if s is not None]
    counts = [with_rank(args.shapes[i], 1)[0] for i in (1, 2)]
    ranks += [c for c in counts if c >= 0]
    if not ranks:
        return [None]
    shape = with_rank(shape, ranks[0])
    wanted = args.integers(2)
    if wanted is None or len(wanted) != len(shape):
        return [size if size is not None else unknown_dims(len(shape))]
    starts = begin or unknown_dims(len(shape))
    return [tuple(map(_slice_size, shape, starts, wanted))]


def _slice_size(extent: int, start: int, size: int) -> int:
    if size >= 0:
        if extent >= 0 and (size > extent or start + size > extent):
            message = f"{size} elements from {start} do not lie within {extent}"
            raise ShapeConflictError(message)
        return size
    return extent - start if extent >= 0 and start >= 0 else UNKNOWN


@shape_fn("Gather")
def gather(args: ShapeArgs) -> Sequence[TensorShape]:
    """The indices' shape in the place of the first dimension."""
    params = at_least_rank(args.shapes[0], 1)
    return [concatenate(args.shapes[1], None if params is None else params[1:])]


@shape_fn("GatherV2")
def gather_v2(args: ShapeArgs) -> Sequence[TensorShape]:
    """The indices' shape, behind its batch dimensions, in the place of an axis."""
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


@shape_fn("GatherNd")
def gather_nd(args: ShapeArgs) -> Sequence[TensorShape]:
    """For each index vector what the leading dimensions leave."""
    params, indices = args.shapes[0], at_least_rank(args.shapes[1], 1)
    if params is None or indices is None or indices[-1] < 0:
        return [None]
    at_least_rank(params, indices[-1])
    return [(*indices[:-1], *params[indices[-1] :])]


@shape_fn("ScatterNd")
def scatter_nd(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the third input holds."""
    return [args.as_shape(2)]


@shape_fn("TensorScatterAdd", "TensorScatterSub", "TensorScatterUpdate")
def tensor_scatter(args: ShapeArgs) -> Sequence[TensorShape]:
    """The first input's shape."""
    return [args.shapes[0]]


@shape_fn("Where")
def where(args: ShapeArgs) -> Sequence[TensorShape]:
    """A row for each element that is true, as long as the input has dimensions."""
    shape = args.shapes[0]
    return [(UNKNOWN, UNKNOWN if shape is None else len(shape))]


@shape_fn("Unique", "UniqueWithCounts", "UniqueV2", "UniqueWithCountsV2")
def unique(args: ShapeArgs) -> Sequence[TensorShape]:
    """The distinct elements, the place of each element among them, and how often each occurs."""
    shape = args.shapes[0]
    counts = [(UNKNOWN,)] * (args.count() - 2)
    if args.node.op.endswith("V2"):
        return [None if shape is None else unknown_dims(len(shape)), (UNKNOWN,), *counts]
    return [(UNKNOWN,), shape, *counts]


@shape_fn("ListDiff")
def list_diff(args: ShapeArgs) -> Sequence[TensorShape]:
    """What is left, and where it was."""
    return [(UNKNOWN,), (UNKNOWN,)]


@shape_fn("DynamicPartition")
def dynamic_partition(args: ShapeArgs) -> Sequence[TensorShape]:
    """Parts of unknown length, each row what the data has behind the partitions' shape."""
    data, partitions = args.shapes[0], args.shapes[1]
    count = args.node.attr_int("num_partitions")
    if data is None or partitions is None:
        return [None] * count
    return [(UNKNOWN, *data[len(partitions) :])] * count
