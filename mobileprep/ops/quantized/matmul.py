"""Quantized matrix products: 8-bit factors, 32-bit sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.integer_products import multiply_integers
from mobileprep.numerics.quantization import offset_of_zero
from mobileprep.ops.arrays import check_allocation
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.math.matmul import matrix_product_flops, product_shape
from mobileprep.ops.quantized.ranges import (
    Quantized,
    check_output,
    check_type,
    product_limits,
    proper_limits,
)
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

_UINT8, _INT32 = np.dtype(np.uint8), np.dtype(np.int32)


@kernel("QuantizedMatMul")
def quantized_mat_mul(
    node: Node, x: Array, y: Array, low_x: Array, high_x: Array, low_y: Array, high_y: Array
) -> Quantized:
    """The product of two matrices, each transposed where its attribute says so.

    Raises:
        InvalidGraphError: a range does not end above its beginning.
        ValueError: the matrices do not fit each other.
    """
    check_type(node, "T1", x, DType.QUINT8)
    check_type(node, "T2", y, DType.QUINT8)
    check_output(node, "Toutput", DType.QINT32)
    of_x, of_y = proper_limits(node, low_x, high_x), proper_limits(node, low_y, high_y)
    left, right = (
        matrix.T if node.attr_bool(transposed, False) else matrix
        for matrix, transposed in ((x, "transpose_a"), (y, "transpose_b"))
    )
    if x.ndim != 2 or y.ndim != 2 or left.shape[1] != right.shape[0]:
        message = f"no product of matrices of shapes {list(left.shape)} and {list(right.shape)}"
        raise ValueError(message)
    check_allocation((left.shape[0], right.shape[1]), _INT32)
    zeros = offset_of_zero(of_x, _UINT8), offset_of_zero(of_y, _UINT8)
    out = multiply_integers(left, right, zeros)
    return out, *product_limits(of_x, of_y, _UINT8, _UINT8).outputs()


@shape_fn("QuantizedMatMul")
def quantized_matmul_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Rows of the first by columns of the second matrix, and the range of the result."""
    return [product_shape(args, 0, 1), (), ()]


flop_rule("QuantizedMatMul")(matrix_product_flops)
