"""Ops that count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import check_allocation, scalar
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import length_in
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import UNKNOWN, ShapeConflictError, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.ragged.row_splits import checked_splits
from mobileprep.ops.shape_function import ShapeArgs, shape_fn
from mobileprep.ops.sparse.parts import sparse_shape


@kernel("Bincount", "DenseBincount")
def bincount(node: Node, x: Array, size: Array, weights: Array) -> Array:
    """How often each number below a size occurs, or the sum of its weights; a row for each row."""
    # Bincount, the older one, knows no rows.
    in_rows = x.ndim == 2 and node.op == "DenseBincount"
    count = len(x) if in_rows else 1
    rows = np.repeat(np.arange(count), x.size // max(count, 1))
    out = _counted(node, rows, count, x, size, weights)
    return out if in_rows else out[0]


@shape_fn("Bincount", "DenseBincount")
def bincount_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector of the given size; for a batch a row for each."""
    shape, size = args.shapes[0], args.scalar(1)
    bins = UNKNOWN if size is None else size
    if args.node.op == "Bincount":
        return [(bins,)]
    return [(*shape[:-1], bins) if shape else None]


flop_rule("Bincount", "DenseBincount")(free)


def _counted(node: Node, rows: Array, height: int, x: Array, size: Array, weights: Array) -> Array:
    """The counts [height, size] of the numbers x, each in the row that ``rows`` tells."""
    count = scalar(size)
    if count < 0 or (x < 0).any() or (weights.size and weights.shape != x.shape):
        message = f"{count} bins, or negative numbers, or weights of another shape"
        raise ValueError(message)
    check_allocation((height, count), weights.dtype)
    out = np.zeros((height, count), dtype=weights.dtype)
    numbers = x.ravel()
    kept = numbers < count
    places = (rows[kept], numbers[kept])
    if node.op != "Bincount" and node.attr_bool("binary_output", False):
        out[places] = 1
    else:
        np.add.at(out, places, weights.ravel()[kept] if weights.size else weights.dtype.type(1))
    return out


@kernel("RaggedBincount")
def ragged_bincount(node: Node, splits: Array, x: Array, size: Array, weights: Array) -> Array:
    """As ``DenseBincount``, of the rows of a ragged matrix."""
    lengths = np.diff(checked_splits(splits, len(x)))
    return _counted(
        node, np.repeat(np.arange(len(lengths)), lengths), len(lengths), x, size, weights
    )


@shape_fn("RaggedBincount")
def ragged_bincount_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A row for each row of the ragged matrix, as long as the given size."""
    splits, size = with_rank(args.shapes[0], 1)[0], args.scalar(2)
    return [(splits - 1 if splits > 0 else UNKNOWN, UNKNOWN if size is None else size)]


flop_rule("RaggedBincount")(free)


@kernel("SparseBincount")
def sparse_bincount(
    node: Node, indices: Array, x: Array, dims: Array, size: Array, weights: Array
) -> Array:
    """As ``DenseBincount``, of a sparse vector or of the rows of a sparse matrix."""
    shape = sparse_shape(indices, dims, x)
    if len(shape) not in (1, 2):
        message = f"a sparse vector or matrix is needed, not one of {len(shape)} axes"
        raise ValueError(message)
    if len(shape) == 2:
        return _counted(node, indices[:, 0], shape[0], x, size, weights)
    out: Array = _counted(node, np.zeros(len(x), np.int64), 1, x, size, weights)[0]
    return out


@shape_fn("SparseBincount")
def sparse_bincount_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector of the given size; of a matrix a row for each of its rows."""
    dims, size = args.as_shape(2), args.scalar(3)
    if dims is None:
        return [None]
    if len(dims) not in (1, 2):
        message = f"a sparse vector or matrix is needed, not one of {len(dims)} axes"
        raise ShapeConflictError(message)
    return [(*dims[:-1], UNKNOWN if size is None else size)]


flop_rule("SparseBincount")(free)


shape_fn("HistogramFixedWidth")(length_in(2))
