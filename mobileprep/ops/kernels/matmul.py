"""Kernels of matrix products."""

from __future__ import annotations

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.kernel import kernel
from mobileprep.ops.kernels._common import check_allocation, same_type


def product(x: Array, y: Array) -> Array:
    """x @ y for two axes and more; half precision is summed in single precision."""
    if x.dtype.itemsize == 2 and x.dtype.kind not in "iu":
        wide = product(x.astype(np.float32), y.astype(np.float32))
        return wide.astype(x.dtype)
    if x.shape[-1] == y.shape[-2]:
        lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        check_allocation((*lead, x.shape[-2], y.shape[-1]), x.dtype)
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


@kernel("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_mat_mul(node: Node, x: Array, y: Array) -> Array:
    """Products of matrices in the last two axes, each adjoint where its attribute says so."""
    if x.ndim < 2 or y.ndim < 2:
        message = "both operands need two axes or more"
        raise ValueError(message)
    if node.op == "BatchMatMul" and x.shape[:-2] != y.shape[:-2]:
        message = "the leading axes must be equal"
        raise ValueError(message)
    out = node.attrs.get("Tout")
    left = _adjoint(x) if node.attr_bool("adj_x", False) else x
    right = _adjoint(y) if node.attr_bool("adj_y", False) else y
    if out is None:
        same_type(node, x, y)
        return product(left, right)
    kind = out.value.numpy
    if kind is None or kind.itemsize > 2:
        return product(left.astype(kind), right.astype(kind))
    return product(left, right).astype(kind)


def _adjoint(x: Array) -> Array:
    swapped = np.swapaxes(x, -1, -2)
    return np.conj(swapped) if x.dtype.kind == "c" else swapped
