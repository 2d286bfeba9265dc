"""Shapes of ops of linear algebra."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.dims import (
    UNKNOWN,
    at_least_rank,
    broadcast,
    concatenate,
    merge,
    merge_dim,
    unknown_dims,
    with_rank,
)
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn


@shape_fn("MatMul", "SparseMatMul")
def matmul(args: ShapeArgs) -> Sequence[TensorShape]:
    """Rows of the first by columns of the second matrix."""
    return [_product(args, 0, 1)]


@shape_fn("QuantizedMatMul")
def quantized_matmul(args: ShapeArgs) -> Sequence[TensorShape]:
    """Rows of the first by columns of the second matrix, and the range of the result."""
    return [_product(args, 0, 1), (), ()]


def _product(args: ShapeArgs, left: int, right: int) -> TensorShape:
    a, b = with_rank(args.shapes[left], 2), with_rank(args.shapes[right], 2)
    rows, inner = reversed(a) if args.node.attr_bool("transpose_a", False) else a
    other, columns = reversed(b) if args.node.attr_bool("transpose_b", False) else b
    merge_dim(inner, other)
    return rows, columns


@shape_fn("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(args: ShapeArgs) -> Sequence[TensorShape]:
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


def _matrix(shape: TensorShape, adjoint: bool) -> tuple[int, int]:
    rows, columns = (UNKNOWN, UNKNOWN) if shape is None else shape[-2:]
    return (columns, rows) if adjoint else (rows, columns)


@shape_fn("Einsum")
def einsum(args: ShapeArgs) -> Sequence[TensorShape]:
    """The output's letters with the sizes that the inputs give them."""
    equation = args.node.attr_str("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if not arrow or "..." in equation or len(terms) != len(args.shapes):
        return [None]
    sizes: dict[str, int] = {}
    for term, given in zip(terms, args.shapes, strict=True):
        for letter, size in zip(term, with_rank(given, len(term)), strict=True):
            sizes[letter] = merge_dim(sizes.get(letter, UNKNOWN), size)
    return [tuple(sizes.get(letter, UNKNOWN) for letter in right)]


@shape_fn("Cholesky", "MatrixInverse", "MatrixExponential", "MatrixLogarithm", "MatrixSquareRoot")
def square_matrices(args: ShapeArgs) -> Sequence[TensorShape]:
    """Square matrices of the input's shape."""
    shape = at_least_rank(args.shapes[0], 2)
    if shape is None:
        return [None]
    size = merge_dim(shape[-2], shape[-1])
    return [(*shape[:-2], size, size)]


@shape_fn("MatrixDeterminant")
def determinant(args: ShapeArgs) -> Sequence[TensorShape]:
    """A number for each matrix."""
    shape = at_least_rank(args.shapes[0], 2)
    return [None if shape is None else shape[:-2]]


@shape_fn("MatrixSolve", "MatrixTriangularSolve")
def matrix_solve(args: ShapeArgs) -> Sequence[TensorShape]:
    """For each matrix as many rows as it has, and the right-hand side's columns."""
    matrix, right = at_least_rank(args.shapes[0], 2), at_least_rank(args.shapes[1], 2)
    if matrix is None or right is None:
        return [None]
    size = reduce(merge_dim, (matrix[-2], matrix[-1], right[-2]))
    batch = broadcast(matrix[:-2], right[:-2])
    return [concatenate(batch, (size, right[-1]))]


@shape_fn("Cross")
def cross(args: ShapeArgs) -> Sequence[TensorShape]:
    """The common shape of both inputs."""
    return [merge(args.shapes[0], args.shapes[1])]


@shape_fn("FFT2D", "FFT3D", "IFFT2D", "IFFT3D")
def transformed(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape."""
    return [args.shapes[0]]


@shape_fn("RFFT", "RFFT2D", "RFFT3D", "IRFFT", "IRFFT2D", "IRFFT3D")
def real_transformed(args: ShapeArgs) -> Sequence[TensorShape]:
    """The given lengths in the last dimensions; forwards, half of the last one, and one more."""
    op = args.node.op
    rank = int(op[-2]) if op[-1] == "D" else 1
    shape, lengths = at_least_rank(args.shapes[0], rank), args.integers(1)
    if shape is None:
        return [None]
    sizes = unknown_dims(rank) if lengths is None else lengths
    if op.startswith("RFFT") and sizes[-1] > 0:
        sizes = (*sizes[:-1], sizes[-1] // 2 + 1)
    return [(*shape[:-rank], *sizes)]
