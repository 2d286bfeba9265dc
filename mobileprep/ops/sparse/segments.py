"""Ops that combine chosen rows of a tensor by segment, as sums of embeddings do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.segments import summed
from mobileprep.ops.array.gathering import check_indices
from mobileprep.ops.arrays import check_allocation, scalar
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import UNKNOWN, at_least_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("SparseSegmentMean", "SparseSegmentSqrtN", "SparseSegmentSum")
def sparse_segment(node: Node, x: Array, indices: Array, ids: Array) -> Array:
    """Chosen rows combined by segment, up to the highest segment there is.

    Args:
        node: its op tells how: the sum, the mean, or the sum by the root of the number of rows.
        x: [rows, ...].
        indices: [chosen], which rows.
        ids: [chosen], the segment of each, ascending.

    Returns:
        [segments, ...], 0 for a segment without rows.
    """
    return _combined(node, x, indices, ids, int(ids[-1]) + 1 if ids.size else 0)


@shape_fn("SparseSegmentMean", "SparseSegmentSqrtN", "SparseSegmentSum")
def sparse_segments_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """As many rows as there are segments, each as long as the data's."""
    data = at_least_rank(args.shapes[0], 1)
    if data is None:
        return [None]
    segments = args.scalar(3) if args.node.op.endswith("NumSegments") else None
    return [(UNKNOWN if segments is None else segments, *data[1:])]


@flop_rule("SparseSegmentSum")
def segment_sum_flops(sizes: Sizes) -> float:
    """One operation for each element of the chosen rows."""
    rows = sizes.input(0)[0]
    return sizes.taken(1) * sizes.taken() / rows if rows else 0


@flop_rule("SparseSegmentMean", "SparseSegmentSqrtN")
def segment_mean_flops(sizes: Sizes) -> float:
    """Sums, and a quotient for each output."""
    return segment_sum_flops(sizes) + sizes.made()


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
    """As without a number of segments; those above the highest are 0."""
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
