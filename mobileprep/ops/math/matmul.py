"""Matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mobileprep.core.limits import spend_products
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import check_allocation, same_type
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import (
    UNKNOWN,
    at_least_rank,
    broadcast,
    concatenate,
    merge,
    merge_dim,
    with_rank,
)
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

# What fused ops do to each element after the product.
_AFTERWARDS = {
    b"BiasAdd": 1,
    b"Add": 1,
    b"Relu": 1,
    b"Relu6": 2,
    b"LeakyRelu": 2,
    b"Elu": 2,
    b"Tanh": 1,
    b"Sigmoid": 4,
    b"FusedBatchNorm": 2,
}


def product(x: Array, y: Array) -> Array:
    """x @ y for two axes and more; half precision is summed in single precision."""
    if x.dtype.itemsize == 2 and x.dtype.kind not in "iu":
        wide = product(x.astype(np.float32), y.astype(np.float32))
        return wide.astype(x.dtype)
    if x.shape[-1] == y.shape[-2]:
        lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        shape = (*lead, x.shape[-2], y.shape[-1])
        check_allocation(shape, x.dtype)
        spend_products(math.prod(shape) * x.shape[-1], x.dtype)
    out: Array = np.matmul(x, y)
    return out


@kernel("MatMul")
def mat_mul(node: Node, x: Array, y: Array) -> Array:
    """The product of two matrices, each transposed where its attribute says so."""
    same_type(node, x, y)
    if x.ndim != 2 or y.ndim != 2:
        message = "both operands must be matrices"
        raise ValueError(message)
    left = x.T if node.attr_bool("transpose_a", False) else x
    right = y.T if node.attr_bool("transpose_b", False) else y
    return product(left, right)


@shape_fn("MatMul")
def matmul_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Rows of the first by columns of the second matrix."""
    return [product_shape(args, 0, 1)]


@flop_rule("MatMul")
def matrix_product_flops(sizes: Sizes) -> float:
    """A multiplication and an addition for each pair that meets."""
    inner = sizes.input(0)[0 if sizes.node.attr_bool("transpose_a", False) else 1]
    return 2 * sizes.made() * inner + fused_ops_flops(sizes)


def product_shape(args: ShapeArgs, left: int, right: int) -> TensorShape:
    """The shape of the product of two matrices, given by the indices of the inputs."""
    a, b = with_rank(args.shapes[left], 2), with_rank(args.shapes[right], 2)
    rows, inner = reversed(a) if args.node.attr_bool("transpose_a", False) else a
    other, columns = reversed(b) if args.node.attr_bool("transpose_b", False) else b
    merge_dim(inner, other)
    return rows, columns


def fused_ops_flops(sizes: Sizes) -> float:
    """What the ops cost that a fused op does after its product."""
    ops = sizes.node.attr_strings("fused_ops") if "fused_ops" in sizes.node.attrs else ()
    return sizes.made() * sum(_AFTERWARDS.get(op, 1) for op in ops)


shape_fn("SparseMatMul")(matmul_shape)


@kernel("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_mat_mul(node: Node, x: Array, y: Array) -> Array:
    """Products of matrices in the last two axes, each adjoint where its attribute says so."""
    if x.ndim < 2 or y.ndim < 2:
        message = "both operands need two axes or more"
        raise ValueError(message)
    if node.op == "BatchMatMul" and x.shape[:-2] != y.shape[:-2]:
        message = "the leading axes must be equal"
        raise ValueError(message)
    left = _adjoint(x) if node.attr_bool("adj_x", False) else x
    right = _adjoint(y) if node.attr_bool("adj_y", False) else y
    if "Tout" not in node.attrs:
        same_type(node, x, y)
        return product(left, right)
    kind = node.attr_dtype("Tout").numpy
    if kind is None or kind.itemsize > 2:
        return product(left.astype(kind), right.astype(kind))
    return product(left, right).astype(kind)


@shape_fn("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Matrices multiplied pair by pair; in the first version no dimension is broadcast."""
    a, b = at_least_rank(args.shapes[0], 2), at_least_rank(args.shapes[1], 2)
    both = a is not None and b is not None
    exact = args.node.op == "BatchMatMul"
    if not both and not exact:
        return [None]
    rows, inner = _matrix(a, args.node.attr_bool("adj_x", False))
    other, columns = _matrix(b, args.node.attr_bool("adj_y", False))
    merge_dim(inner, other)
    batches = (None if a is None else a[:-2]), (None if b is None else b[:-2])
    batch = merge(*batches) if exact else broadcast(*batches)
    return [concatenate(batch, (rows, columns))]


@flop_rule("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_product_flops(sizes: Sizes) -> float:
    """As of one matrix product, for each."""
    inner = sizes.input(0)[-2 if sizes.node.attr_bool("adj_x", False) else -1]
    return 2 * sizes.made() * inner


def _adjoint(x: Array) -> Array:
    swapped = np.swapaxes(x, -1, -2)
    return np.conj(swapped) if x.dtype.kind == "c" else swapped


def _matrix(shape: TensorShape, adjoint: bool) -> tuple[int, int]:
    rows, columns = (UNKNOWN, UNKNOWN) if shape is None else shape[-2:]
    return (columns, rows) if adjoint else (rows, columns)
