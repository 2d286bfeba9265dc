"""Ops that count, and that turn indices or bits into others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.array.gathering import check_indices
from mobileprep.ops.arrays import check_allocation, integers, scalar
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import UNKNOWN
from mobileprep.ops.kernel import kernel
from mobileprep.ops.ragged.row_splits import checked_splits
from mobileprep.ops.shape_function import ShapeArgs, shape_fn
from mobileprep.ops.sparse.parts import sparse_shape


@kernel("Bincount", "DenseBincount")
def bincount(node: Node, x: Array, size: Array, weights: Array) -> Array:
    """How often each number below a size occurs, or the sum of its weights; a row for each row."""
    count = len(x) if x.ndim == 2 else 1
    rows = np.repeat(np.arange(count), x.size // max(count, 1))
    out = _counted(node, rows, count, x, size, weights)
    return out if x.ndim == 2 else out[0]


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


flop_rule("SparseBincount")(free)


@kernel("UnravelIndex")
def unravel_index(node: Node, indices: Array, dims: Array) -> Array:
    """The coordinates of places in a flattened tensor of a shape, a row for each axis."""
    shape = integers(dims)
    check_indices(indices, int(np.prod(shape, dtype=np.int64)))
    return np.array(np.unravel_index(indices, shape), dtype=indices.dtype)


flop_rule("UnravelIndex")(free)


@kernel("Bitcast")
def bitcast(node: Node, x: Array) -> Array:
    """The same bytes read as another type; elements split into, or are joined from, a last axis."""
    kind = node.attr_dtype("type").numpy
    if kind is None or x.dtype == object:
        message = "these elements have no bytes of their own"
        raise TypeError(message)
    flat = np.ascontiguousarray(x)
    if kind.itemsize == x.dtype.itemsize:
        return flat.reshape(x.shape).view(kind)
    if kind.itemsize < x.dtype.itemsize:
        return flat.reshape(*x.shape, 1).view(kind)
    if x.ndim < 1 or x.shape[-1] * x.dtype.itemsize != kind.itemsize:
        message = f"the last axis of {list(x.shape)} does not make one {kind}"
        raise ValueError(message)
    return flat.view(kind).reshape(x.shape[:-1])


@shape_fn("Bitcast")
def bitcast_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape; where element sizes differ, one dimension comes or goes."""
    source = args.shapes[0]
    given = args.node.attr_dtype("T").itemsize
    wanted = args.node.attr_dtype("type").itemsize
    if source is None or not given or not wanted:
        return [None]
    if given < wanted:
        return [source[:-1]]
    return [source if given == wanted else (*source, given // wanted)]


flop_rule("Bitcast")(free)


@kernel("DataFormatVecPermute", "DataFormatDimMap")
def data_format(node: Node, x: Array) -> Array:
    """Dimensions, or numbers of axes, of one data format in the order of another."""
    source = node.attr_str("src_format", "NHWC")
    target = node.attr_str("dst_format", "NCHW")
    if sorted(source) != sorted(target):
        message = f"{source!r} and {target!r} are not the same axes"
        raise ValueError(message)
    if node.op == "DataFormatDimMap":
        check_indices(x % len(source), len(source))
        return np.take(np.array([target.index(c) for c in source], dtype=x.dtype), x % len(source))
    if len(x) == len(source) - 2:
        source = "".join(c for c in source if c in "HWD")
        target = "".join(c for c in target if c in "HWD")
    return x[[source.index(c) for c in target]]


shape_fn("DataFormatDimMap")(unchanged)


flop_rule("DataFormatDimMap", "DataFormatVecPermute")(free)


@shape_fn("HistogramFixedWidth")
def histogram_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector of the given number of bins."""
    bins = args.scalar(2)
    return [(UNKNOWN if bins is None else bins,)]
