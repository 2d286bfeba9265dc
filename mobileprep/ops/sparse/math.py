"""Ops that compute with the elements of sparse tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.segments import summed
from mobileprep.ops.arrays import axes_of, check_allocation, same_type
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import axis_index, merge_dim, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn
from mobileprep.ops.sparse.parts import flat_places, in_order, sparse_shape

_ELEMENTWISE: dict[str, Callable[[Array, Array], Any]] = {
    "SparseDenseCwiseAdd": np.add,
    "SparseDenseCwiseDiv": np.divide,
    "SparseDenseCwiseMul": np.multiply,
}


@kernel("SparseReduceMax", "SparseReduceSum")
def sparse_reduce(node: Node, indices: Array, values: Array, dims: Array, axes: Array) -> Array:
    """The sum or the largest of a sparse tensor's elements along axes, 0 where there are none.

    Returns:
        A dense tensor.
    """
    shape = sparse_shape(indices, dims, values)
    reduced = axes_of(axes, len(shape))
    kept = [a for a in range(len(shape)) if a not in reduced]
    rest = tuple(shape[a] for a in kept)
    check_allocation(rest, values.dtype)
    out = np.zeros(math.prod(rest), values.dtype)
    place = flat_places(indices[:, kept], rest)
    if len(place):
        order = np.argsort(place, kind="stable")
        first = np.flatnonzero(np.diff(place[order], prepend=-1))
        combine = np.add if node.op == "SparseReduceSum" else np.maximum
        out[place[order][first]] = combine.reduceat(values[order], first)
    if node.attr_bool("keep_dims", False):
        rest = tuple(1 if a in reduced else n for a, n in enumerate(shape))
    return out.reshape(rest)


@shape_fn("SparseReduceMax", "SparseReduceSum")
def sparse_reduce_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape of the dense tensor without the reduced axes, or with those of size 1."""
    shape, axes = args.integers(2), args.integers(3)
    if shape is None or axes is None:
        return [None]
    reduced = {axis_index(a, len(shape)) for a in axes}
    if args.node.attr_bool("keep_dims", False):
        return [tuple(1 if i in reduced else n for i, n in enumerate(shape))]
    return [tuple(n for i, n in enumerate(shape) if i not in reduced)]


@flop_rule("SparseReduceMax", "SparseReduceSum")
def by_values_flops(sizes: Sizes) -> float:
    """One operation for each element that is there."""
    return sizes.taken(1)


@kernel("SparseTensorDenseMatMul")
def sparse_dense_matmul(
    node: Node, indices: Array, values: Array, dims: Array, other: Array
) -> Array:
    """The product of a sparse and a dense matrix, each turned about and conjugated on demand."""
    same_type(node, values, other)
    shape = sparse_shape(indices, dims, values)
    if len(shape) != 2 or other.ndim != 2:
        message = "two matrices are needed"
        raise ValueError(message)
    rows, columns = indices[:, 0], indices[:, 1]
    if node.attr_bool("adjoint_a", False):
        rows, columns, shape, values = columns, rows, shape[::-1], values.conj()
    if node.attr_bool("adjoint_b", False):
        other = other.conj().T
    if shape[1] != len(other):
        message = f"a matrix of shape {list(shape)} times one of {list(other.shape)}"
        raise ValueError(message)
    check_allocation((shape[0], other.shape[1]), values.dtype)
    check_allocation((len(values), other.shape[1]), values.dtype)
    order = np.argsort(rows, kind="stable")
    terms = values[order, np.newaxis] * other[columns[order]]
    return summed(terms, rows[order], shape[0])


@shape_fn("SparseTensorDenseMatMul")
def sparse_matmul_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Rows of the sparse by columns of the dense matrix."""
    left, right = with_rank(args.as_shape(2), 2), with_rank(args.shapes[3], 2)
    rows, inner = reversed(left) if args.node.attr_bool("adjoint_a", False) else left
    other, columns = reversed(right) if args.node.attr_bool("adjoint_b", False) else right
    merge_dim(inner, other)
    return [(rows, columns)]


@flop_rule("SparseTensorDenseMatMul")
def sparse_matmul_flops(sizes: Sizes) -> float:
    """A product and a sum for each element that is there and each column."""
    return 2 * sizes.taken(1) * sizes.output()[1]


@kernel(*_ELEMENTWISE)
def sparse_dense_elementwise(
    node: Node, indices: Array, values: Array, dims: Array, other: Array
) -> Array:
    """The values of a sparse tensor computed with the elements of a dense one at their places.

    The dense tensor is broadcast to the sparse one, never the other way round.
    """
    same_type(node, values, other)
    shape = sparse_shape(indices, dims, values)
    # A view: nothing of the sparse tensor's shape is allocated.
    spread = np.broadcast_to(other, shape)
    there = spread[tuple(indices.T)] if shape else spread.reshape(-1)
    return np.asarray(_ELEMENTWISE[node.op](values, there), dtype=values.dtype)


@shape_fn(*_ELEMENTWISE)
def sparse_dense_elementwise_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A value for each element that is there."""
    return [with_rank(args.shapes[0], 2)[:1]]


flop_rule("SparseDenseCwiseAdd", "SparseDenseCwiseDiv", "SparseDenseCwiseMul")(by_values_flops)


@kernel("SparseSoftmax")
def sparse_softmax(node: Node, indices: Array, values: Array, dims: Array) -> Array:
    """The softmax of the elements of each row along the last axis; what is not there is no part."""
    shape = sparse_shape(indices, dims, values)
    if not len(values):
        return values
    place = flat_places(indices[:, :-1], shape[:-1])
    order = in_order(place[:, np.newaxis])
    first = np.flatnonzero(np.diff(place[order], prepend=-1))
    lengths = np.diff(first, append=len(values))
    powers = np.exp(values[order] - np.repeat(np.maximum.reduceat(values[order], first), lengths))
    out = np.empty_like(values)
    out[order] = powers / np.repeat(np.add.reduceat(powers, first), lengths)
    return out


@shape_fn("SparseSoftmax")
def sparse_softmax_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A value for each element that is there."""
    return [with_rank(args.shapes[1], 1)]


@flop_rule("SparseSoftmax")
def sparse_softmax_flops(sizes: Sizes) -> float:
    """As of a dense softmax, for each element that is there."""
    return 5 * sizes.taken(1)
