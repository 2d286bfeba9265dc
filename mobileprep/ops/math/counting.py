"""Counts and reductions of segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mobileprep.formats.dtypes import narrow_max
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.array.gathering import Write, check_indices
from mobileprep.ops.arrays import (
    check_allocation,
    dimensions,
    integers,
    scalar,
)
from mobileprep.ops.kernel import Sizes, flop_rule, free, kernel, per_input
from mobileprep.ops.math.reduce import bound
from mobileprep.ops.ragged.ragged import checked_splits
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    ShapeConflictError,
    at_least_rank,
    length_in,
    shape_fn,
    with_rank,
)
from mobileprep.ops.sparse.sparse import sparse_shape


@kernel("Bincount", "DenseBincount", flops=free)
def bincount(node: Node, x: Array, size: Array, weights: Array) -> Array:
    """Count occurrences of each number below a size, or sum their weights; by row for a matrix."""
    # Bincount, the older op, does not support rows.
    in_rows = x.ndim == 2 and node.op == "DenseBincount"
    count = len(x) if in_rows else 1
    rows = np.repeat(np.arange(count), x.size // max(count, 1))
    out = _counted(node, rows, count, x, size, weights)
    return out if in_rows else out[0]


@shape_fn("Bincount", "DenseBincount")
def bincount_shape(args: ShapeArgs) -> OutputShapes:
    """Return a vector of the given size, or a row for each row of a matrix."""
    shape, size = args.shapes[0], args.scalar(1)
    bins = UNKNOWN if size is None else size
    if args.node.op == "Bincount":
        return [(bins,)]
    return [(*shape[:-1], bins) if shape else None]


def _counted(node: Node, rows: Array, height: int, x: Array, size: Array, weights: Array) -> Array:
    """Count the numbers x as [height, size], each in the row given by ``rows``."""
    count = scalar(size)
    if count < 0 or (x < 0).any() or (weights.size and weights.shape != x.shape):
        message = f"{count} bins, or negative numbers, or weights of another shape"
        raise ValueError(message)
    check_allocation((height, count), weights.dtype)
    out = np.zeros((height, count), dtype=weights.dtype)
    numbers = x.ravel()
    in_range = numbers < count
    places = (rows[in_range], numbers[in_range])
    if node.op != "Bincount" and node.attr_bool("binary_output", False):
        out[places] = 1
    else:
        np.add.at(out, places, weights.ravel()[in_range] if weights.size else weights.dtype.type(1))
    return out


@kernel("RaggedBincount", flops=free)
def ragged_bincount(node: Node, splits: Array, x: Array, size: Array, weights: Array) -> Array:
    """Count like ``DenseBincount`` for each row of a ragged matrix."""
    lengths = np.diff(checked_splits(splits, len(x)))
    return _counted(
        node, np.repeat(np.arange(len(lengths)), lengths), len(lengths), x, size, weights
    )


@shape_fn("RaggedBincount")
def ragged_bincount_shape(args: ShapeArgs) -> OutputShapes:
    """Return a row of the given size for each row of the ragged matrix."""
    splits, size = with_rank(args.shapes[0], 1)[0], args.scalar(2)
    return [(splits - 1 if splits > 0 else UNKNOWN, UNKNOWN if size is None else size)]


@kernel("SparseBincount", flops=free)
def sparse_bincount(
    node: Node, indices: Array, x: Array, dims: Array, size: Array, weights: Array
) -> Array:
    """Count like ``DenseBincount`` for a sparse vector or each row of a sparse matrix."""
    shape = sparse_shape(indices, dims, x)
    if len(shape) not in (1, 2):
        message = f"a sparse vector or matrix is needed, not one of {len(shape)} axes"
        raise ValueError(message)
    if len(shape) == 2:
        return _counted(node, indices[:, 0], shape[0], x, size, weights)
    out: Array = _counted(node, np.zeros(len(x), np.int64), 1, x, size, weights)[0]
    return out


@shape_fn("SparseBincount")
def sparse_bincount_shape(args: ShapeArgs) -> OutputShapes:
    """Return a vector of the given size, or a row for each row of a matrix."""
    dims, size = args.as_shape(2), args.scalar(3)
    if dims is None:
        return [None]
    if len(dims) not in (1, 2):
        message = f"a sparse vector or matrix is needed, not one of {len(dims)} axes"
        raise ShapeConflictError(message)
    return [(*dims[:-1], UNKNOWN if size is None else size)]


shape_fn("HistogramFixedWidth")(length_in(2))


_SEGMENTS: dict[str, tuple[Write, Callable[[np.dtype[Any]], Any]]] = {
    "Max": (np.maximum.at, lambda kind: _extreme(kind, lowest=True)),
    "Min": (np.minimum.at, lambda kind: _extreme(kind, lowest=False)),
    "Prod": (np.multiply.at, lambda kind: kind.type(1)),
    "Sum": (np.add.at, lambda kind: kind.type(0)),
}


def _extreme(kind: np.dtype[Any], *, lowest: bool) -> Any:  # noqa: ANN401 - a numpy scalar
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return kind.type(info.min if lowest else info.max)
    # The lowest finite number, like in TensorFlow.
    limit = narrow_max(kind)
    return -limit if lowest else limit


@kernel(
    "UnsortedSegmentMax",
    "UnsortedSegmentMin",
    "UnsortedSegmentProd",
    "UnsortedSegmentSum",
    flops=per_input(1),
)
def unsorted_segment(node: Node, x: Array, ids: Array, count: Array) -> Array:
    """Combine slices by segment; slices of a negative segment are dropped."""
    number = scalar(count)
    write, start = _SEGMENTS[node.op.removeprefix("UnsortedSegment")]
    shape = dimensions(np.array([number, *x.shape[ids.ndim :]]), x.dtype)
    if x.shape[: ids.ndim] != ids.shape:
        message = f"segments of shape {list(ids.shape)} for {list(x.shape)}"
        raise ValueError(message)
    out = np.full(shape, start(x.dtype), dtype=x.dtype)
    valid = ids >= 0
    check_indices(ids[valid], number)
    write(out, (ids[valid],), x[valid])
    return out


@shape_fn(
    *("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"),
    "UnsortedSegmentSum",
)
def unsorted_segments_shape(args: ShapeArgs) -> OutputShapes:
    """Replace the ids' dimensions by the given number of segments."""
    data, ids, count = args.shapes[0], args.shapes[1], args.scalar(2)
    if data is None or ids is None:
        return [None]
    return [(UNKNOWN if count is None else count, *data[len(ids) :])]


@kernel("SegmentMax", "SegmentMean", "SegmentMin", "SegmentProd", "SegmentSum")
def segment(node: Node, x: Array, ids: Array) -> Array:
    """Combine slices by ascending segment; empty segments are 0 (1 for Prod)."""
    numbers = np.array(integers(ids), dtype=np.int64)
    if x.ndim < 1 or len(numbers) != len(x) or (np.diff(numbers) < 0).any():
        message = "there must be an ascending segment for each slice"
        raise ValueError(message)
    length = int(numbers[-1]) + 1 if len(numbers) else 0
    check_indices(numbers, max(length, 1))
    shape = dimensions(np.array([length, *x.shape[1:]]), x.dtype)
    kind = node.op.removeprefix("Segment")
    write, start = _SEGMENTS["Sum" if kind == "Mean" else kind]
    # TensorFlow starts with the segment's first row, which replaces any bound.
    lowest = {"Max": True, "Min": False}.get(kind)
    first = start(x.dtype) if lowest is None else bound(x.dtype, lowest=lowest)
    out = np.full(shape, first, dtype=x.dtype)
    write(out, (numbers,), x)
    counts = np.bincount(numbers, minlength=length).reshape(-1, *[1] * (x.ndim - 1))
    if kind == "Mean":
        return (out / np.maximum(counts, 1)).astype(x.dtype)
    empty = x.dtype.type(1 if kind == "Prod" else 0)
    return np.where(counts > 0, out, empty)


@shape_fn(
    *("SegmentMax", "SegmentMean", "SegmentMin", "SegmentProd", "SegmentSum"),
)
def segments_shape(args: ShapeArgs) -> OutputShapes:
    """Return an unknown number of segments, which depends on the ids' values."""
    data = at_least_rank(args.shapes[0], 1)
    with_rank(args.shapes[1], 1)
    return [None if data is None else (UNKNOWN, *data[1:])]


flop_rule("SegmentMax", "SegmentMin", "SegmentProd", "SegmentSum")(per_input(1))


@flop_rule("SegmentMean")
def segment_mean_flops(sizes: Sizes) -> float:
    """Count the sums, and a quotient for each output."""
    return sizes.input_elements() + sizes.output_elements()
