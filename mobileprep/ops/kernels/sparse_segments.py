"""Kernels that combine chosen rows of a tensor by segment, as sums of embeddings do."""

from __future__ import annotations

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.kernel import kernel
from mobileprep.ops.kernels._common import check_allocation, scalar
from mobileprep.ops.kernels.selecting import check_indices
from mobileprep.ops.segments import summed


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


@kernel(
    "SparseSegmentMeanWithNumSegments",
    "SparseSegmentSqrtNWithNumSegments",
    "SparseSegmentSumWithNumSegments",
)
def sparse_segment_of(node: Node, x: Array, indices: Array, ids: Array, count: Array) -> Array:
    """As without a number of segments; those above the highest are 0."""
    return _combined(node, x, indices, ids, scalar(count))


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
