"""Ops that invert, factor and solve matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from mobileprep.core.limits import spend
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.common_shapes import same_as_both
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import at_least_rank, broadcast, concatenate, merge_dim
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

# Operations that each element takes for each row, at most.
_COST = 8


def check_matrices(x: Array) -> None:
    """Refuse a tensor of less than two axes.

    Raises:
        ValueError: it holds no matrices.
    """
    if x.ndim < 2:
        message = f"expected matrices, found the shape {list(x.shape)}"
        raise ValueError(message)


@kernel("MatrixInverse", "Cholesky", "MatrixDeterminant", "MatrixSolve")
def linear_algebra(node: Node, x: Array, *rest: Array) -> Array:
    """Inverse, Cholesky factor, determinant or solution of matrices."""
    check_matrices(x)
    adjoint = node.attr_bool("adjoint", False)
    source = np.conj(np.swapaxes(x, -1, -2)) if adjoint else x
    spend(_COST * x.size * x.shape[-1])
    try:
        if node.op == "MatrixInverse":
            return np.linalg.inv(source)
        if node.op == "Cholesky":
            return np.linalg.cholesky(source)
        if node.op == "MatrixSolve":
            return np.linalg.solve(source, *rest)
        return np.asarray(np.linalg.det(source), dtype=x.dtype)
    except np.linalg.LinAlgError as error:
        message = "the matrix is singular or not positive definite"
        raise ValueError(message) from error


@shape_fn("Cholesky", "MatrixInverse")
def square_matrices_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Square matrices of the input's shape."""
    shape = at_least_rank(args.shapes[0], 2)
    if shape is None:
        return [None]
    size = merge_dim(shape[-2], shape[-1])
    return [(*shape[:-2], size, size)]


@shape_fn("MatrixDeterminant")
def determinant_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A number for each matrix."""
    shape = at_least_rank(args.shapes[0], 2)
    return [None if shape is None else shape[:-2]]


@shape_fn("MatrixSolve")
def matrix_solve_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """For each matrix as many rows as it has, and the right-hand side's columns."""
    matrix, right = at_least_rank(args.shapes[0], 2), at_least_rank(args.shapes[1], 2)
    if matrix is None or right is None:
        return [None]
    size = reduce(merge_dim, (matrix[-2], matrix[-1], right[-2]))
    batch = broadcast(matrix[:-2], right[:-2])
    return [concatenate(batch, (size, right[-1]))]


@flop_rule(
    *("Cholesky", "MatrixDeterminant", "MatrixInverse", "MatrixSolve"),
)
def factorization_flops(sizes: Sizes) -> float:
    """The terms of highest order of the usual algorithms."""
    shape = sizes.input(0)
    order, batch = shape[-1], math.prod(shape[:-2])
    if sizes.node.op == "Cholesky":
        return batch * order**3 / 3
    if sizes.node.op == "MatrixDeterminant":
        return batch * order**3 * 2 / 3
    if sizes.node.op == "MatrixInverse":
        return batch * order**3 * 2
    return batch * (order**3 * 2 / 3 + 2 * order**2 * sizes.input(1)[-1])


shape_fn("MatrixExponential", "MatrixLogarithm", "MatrixSquareRoot")(square_matrices_shape)


shape_fn("MatrixTriangularSolve")(matrix_solve_shape)


shape_fn("Cross")(same_as_both)
