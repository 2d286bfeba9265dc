"""Shapes of ops that take elements together along axes."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.dims import UNKNOWN, at_least_rank, axis_index, unknown_dims, with_rank
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn


@shape_fn("All", "Any", "EuclideanNorm", "Max", "Mean", "Min", "Prod", "ReduceJoin", "Sum")
def reduction(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input without the reduced axes, or with those of size 1."""
    shape, axes = args.shapes[0], args.integers(1)
    keep = args.node.attr_bool("keep_dims", False)
    if shape is None:
        return [None]
    if axes is None:
        return [unknown_dims(len(shape)) if keep else _unknown_axes(args.shapes[1], len(shape))]
    reduced = {axis_index(a, len(shape)) for a in axes}
    if keep:
        return [tuple(1 if i in reduced else d for i, d in enumerate(shape))]
    return [tuple(d for i, d in enumerate(shape) if i not in reduced)]


def _unknown_axes(axes: TensorShape, rank: int) -> TensorShape:
    """As many axes less as there are, since none may be named twice."""
    if axes == ():
        return unknown_dims(rank - 1) if rank else None
    if axes is not None and len(axes) == 1 and 0 <= axes[0] <= rank:
        return unknown_dims(rank - axes[0])
    return None


@shape_fn("ArgMax", "ArgMin")
def arg_extreme(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input without one axis."""
    shape, axis = args.shapes[0], args.scalar(1)
    if shape is None:
        return [None]
    if len(shape) <= 1:
        return [()]
    if axis is None:
        return [unknown_dims(len(shape) - 1)]
    axis = axis_index(axis, len(shape))
    return [(*shape[:axis], *shape[axis + 1 :])]


@shape_fn("SegmentMax", "SegmentMean", "SegmentMin", "SegmentProd", "SegmentSum")
def segments(args: ShapeArgs) -> Sequence[TensorShape]:
    """As many rows as there are segments, which the ids' values tell."""
    data = at_least_rank(args.shapes[0], 1)
    with_rank(args.shapes[1], 1)
    return [None if data is None else (UNKNOWN, *data[1:])]


@shape_fn("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd", "UnsortedSegmentSum")
def unsorted_segments(args: ShapeArgs) -> Sequence[TensorShape]:
    """The given number of rows in the place of the ids' dimensions."""
    data, ids, count = args.shapes[0], args.shapes[1], args.scalar(2)
    if data is None or ids is None:
        return [None]
    return [(UNKNOWN if count is None else count, *data[len(ids) :])]


@shape_fn("TopK", "TopKV2")
def top_k(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input with its last dimension cut to k, twice."""
    k = args.scalar(1) if args.node.op == "TopKV2" else args.node.attr_int("k")
    shape = at_least_rank(args.shapes[0], 1)
    if shape is None:
        return [None, None]
    cut = (*shape[:-1], UNKNOWN if k is None else k)
    return [cut, cut]


@shape_fn("InTopK", "InTopKV2")
def in_top_k(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector with an element for each prediction."""
    rows = with_rank(args.shapes[0], 2)[0]
    targets = with_rank(args.shapes[1], 1)[0]
    return [(max(rows, targets),)]


@shape_fn("NthElement")
def nth_element(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input without its last dimension."""
    shape = at_least_rank(args.shapes[0], 1)
    return [None if shape is None else shape[:-1]]


@shape_fn("Bincount", "DenseBincount")
def bincount(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector of the given size; for a batch a row for each."""
    shape, size = args.shapes[0], args.scalar(1)
    bins = UNKNOWN if size is None else size
    if args.node.op == "Bincount":
        return [(bins,)]
    return [(*shape[:-1], bins) if shape else None]


@shape_fn("HistogramFixedWidth")
def histogram(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector of the given number of bins."""
    bins = args.scalar(2)
    return [(UNKNOWN if bins is None else bins,)]
