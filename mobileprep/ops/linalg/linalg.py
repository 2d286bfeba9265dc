"""Linear algebra: matrices and their diagonals."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
from msgspec import Struct

from mobileprep.core.limits import spend
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import check_allocation, integers, scalar
from mobileprep.ops.kernel import Sizes, flop_rule, free, kernel
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    ShapeConflictError,
    at_least_rank,
    broadcast,
    concatenate,
    merge,
    merge_dim,
    same_as_both,
    shape_fn,
    unchanged,
)

# Maximum number of operations for each element and row.
_COST = 8


def check_matrices(x: Array) -> None:
    """Raise an error for a tensor with fewer than two axes."""
    if x.ndim < 2:
        message = f"expected matrices, found the shape {list(x.shape)}"
        raise ValueError(message)


@kernel("MatrixInverse", "Cholesky", "MatrixDeterminant", "MatrixSolve")
def linear_algebra(node: Node, x: Array, *rest: Array) -> Array:
    """Compute the inverse, Cholesky factor, determinant, or solution of matrices."""
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
def square_matrices_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape, merged to square matrices."""
    shape = at_least_rank(args.shapes[0], 2)
    if shape is None:
        return [None]
    size = merge_dim(shape[-2], shape[-1])
    return [(*shape[:-2], size, size)]


@shape_fn("MatrixDeterminant")
def determinant_shape(args: ShapeArgs) -> OutputShapes:
    """Return a number for each matrix."""
    shape = at_least_rank(args.shapes[0], 2)
    return [None if shape is None else shape[:-2]]


@shape_fn("MatrixSolve")
def matrix_solve_shape(args: ShapeArgs) -> OutputShapes:
    """Return the rows of the matrix by the columns of the right-hand side."""
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
    """Count the highest-order terms of the usual algorithms."""
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


@kernel("MatrixBandPart", shape=unchanged, flops=free)
def matrix_band_part(node: Node, x: Array, lower: Array, upper: Array) -> Array:
    """Set elements of x outside of a band to zero; a negative width keeps that whole side."""
    check_matrices(x)
    below, above = scalar(lower), scalar(upper)
    rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
    band = ((below < 0) | (rows - columns <= below)) & ((above < 0) | (columns - rows <= above))
    return np.where(band, x, x.dtype.type(0))


class _Diagonals(Struct, frozen=True):
    """Adjacent diagonals of a matrix, and their layout in a tensor [.., diagonals, length].

    Args:
        low, high: the lowest and the highest, 0 for the main one, negative below it.
        align: alignment of short diagonals above and below the main one, e.g. "RIGHT_LEFT".
    """

    low: int
    high: int
    align: str

    @classmethod
    def of(cls, node: Node, k: Array | None) -> _Diagonals:
        """Create the diagonals from a node's input and attribute."""
        band = (0,) if k is None else integers(k)
        if len(band) not in (1, 2) or band[0] > band[-1]:
            message = f"{list(band)} are not diagonals"
            raise ValueError(message)
        default = "RIGHT_LEFT" if node.op.endswith("V3") else "LEFT_LEFT"
        return cls(band[0], band[-1], node.attr_str("align", default))

    def places(self, rows: int, columns: int) -> tuple[Array, Array, Array]:
        """Return the row, column, and validity of each slot [diagonals, length]."""
        length = min(rows + min(self.high, 0), columns - max(self.low, 0))
        check_allocation((self.high - self.low + 1, max(length, 1)), np.dtype(np.int64))
        numbers = np.arange(self.high, self.low - 1, -1).reshape(-1, 1)
        sizes = np.minimum(rows + np.minimum(numbers, 0), columns - np.maximum(numbers, 0))
        above, below = self.align.split("_")
        right = np.where(numbers >= 0, above == "RIGHT", below == "RIGHT")
        step = np.arange(max(length, 0)) - np.where(right, length - sizes, 0)
        valid = (step >= 0) & (step < sizes)
        row = np.where(valid, step - np.minimum(numbers, 0), 0)
        column = np.where(valid, step + np.maximum(numbers, 0), 0)
        return row, column, valid


@kernel("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3", flops=free)
def matrix_diag_part(
    node: Node, x: Array, k: Array | None = None, padding: Array | None = None
) -> Array:
    """Extract the diagonals of matrices, padding shorter ones."""
    check_matrices(x)
    diagonals = _Diagonals.of(node, k)
    rows, columns = x.shape[-2:]
    if not -max(rows, 1) < diagonals.low <= diagonals.high < max(columns, 1):
        message = f"a matrix {list(x.shape[-2:])} has no such diagonals"
        raise ValueError(message)
    row, column, valid = diagonals.places(rows, columns)
    filler = x.dtype.type(0) if padding is None else padding
    out = np.where(valid, x[..., row, column], filler)
    return out[..., 0, :] if diagonals.low == diagonals.high else out


@shape_fn("MatrixDiagPart")
def matrix_diag_part_shape(args: ShapeArgs) -> OutputShapes:
    """Replace the last two dimensions of the input by the smaller one."""
    source = at_least_rank(args.shapes[0], 2)
    return [None if source is None else (*source[:-2], _smaller(*source[-2:]))]


@shape_fn("MatrixDiagPartV2", "MatrixDiagPartV3")
def matrix_diag_part_v2_shape(args: ShapeArgs) -> OutputShapes:
    """Replace the last two dimensions by the number of diagonals, if several, and their length."""
    source, band = at_least_rank(args.shapes[0], 2), _band(args)
    if source is None or band is None:
        return [None]
    low, high = band
    rows, columns = source[-2:]
    for k in band:
        if k and ((rows >= 0 and k <= -rows) or (columns >= 0 and k >= columns)):
            message = f"matrices of {list(source[-2:])} have no diagonal {k}"
            raise ShapeConflictError(message)
    length = UNKNOWN
    if min(rows, columns) >= 0:
        length = min(rows + min(high, 0), columns - max(low, 0))
    return [(*source[:-2], *_several(band), length)]


@kernel("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3", flops=free)
def matrix_diag(
    node: Node,
    diagonal: Array,
    k: Array | None = None,
    rows: Array | None = None,
    columns: Array | None = None,
    padding: Array | None = None,
) -> Array:
    """Create matrices with given diagonals."""
    diagonals = _Diagonals.of(node, k)
    if diagonal.ndim < 1 or (diagonals.low != diagonals.high and diagonal.ndim < 2):
        message = f"a tensor of shape {list(diagonal.shape)} holds no such diagonals"
        raise ValueError(message)
    length = diagonal.shape[-1]
    least = length - min(diagonals.high, 0), length + max(diagonals.low, 0)
    height = least[0] if rows is None or scalar(rows) == -1 else scalar(rows)
    width = least[1] if columns is None or scalar(columns) == -1 else scalar(columns)
    if rows is not None and scalar(rows) == -1 and columns is not None and scalar(columns) == -1:
        height = width = max(least)
    lead = diagonal.shape[: -1 if diagonals.low == diagonals.high else -2]
    check_allocation((*lead, height, width), diagonal.dtype)
    filler = diagonal.dtype.type(0) if padding is None else padding
    out = np.full((*lead, height, width), filler, dtype=diagonal.dtype)
    return _set(out, diagonal, diagonals)


@shape_fn("MatrixDiag")
def matrix_diag_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape with the last dimension repeated."""
    source = at_least_rank(args.shapes[0], 1)
    return [None if source is None else (*source, source[-1])]


@shape_fn("MatrixDiagV2", "MatrixDiagV3")
def matrix_diag_v2_shape(args: ShapeArgs) -> OutputShapes:
    """Return the matrices' shape; rows or columns of -1 mean the minimum for the diagonals."""
    source, band = args.shapes[0], _band(args)
    if source is None or band is None:
        return [None]
    low, high = band
    count = _several(band)
    at_least_rank(source, 1 + len(count))
    if count:
        merge_dim(source[-2], *count)
    batch, rows, columns = source[: -1 - len(count)], args.scalar(2), args.scalar(3)
    if source[-1] < 0:
        return [(*batch, *(UNKNOWN if n is None else n for n in (rows, columns)))]
    least = source[-1] - min(high, 0), source[-1] + max(low, 0)
    if rows == columns == -1:
        return [(*batch, max(least), max(least))]
    sizes = [_size(*pair) for pair in zip((rows, columns), least, strict=True)]
    if UNKNOWN not in sizes and all(s != n for s, n in zip(sizes, least, strict=True)):
        message = f"diagonals of {source[-1]} are too short for matrices of {sizes}"
        raise ShapeConflictError(message)
    return [(*batch, *sizes)]


def _band(args: ShapeArgs) -> tuple[int, int] | None:
    """Return the lowest and the highest diagonal in the second input, or None."""
    named = args.integers(1)
    if named is None:
        return None
    if len(named) not in (1, 2) or named[0] > named[-1]:
        message = f"{list(named)} are not diagonals"
        raise ShapeConflictError(message)
    return named[0], named[-1]


def _several(band: tuple[int, int]) -> tuple[int, ...]:
    """Return the dimension of the diagonals, which a single one does not have."""
    low, high = band
    return () if low == high else (high - low + 1,)


def _size(requested: int | None, least: int) -> int:
    """Return the number of rows or columns, at least the required minimum."""
    if requested is None:
        return UNKNOWN
    if requested == -1:
        return least
    if requested < least:
        message = f"{requested} rows or columns do not hold diagonals that need {least}"
        raise ShapeConflictError(message)
    return requested


def _smaller(a: int, b: int) -> int:
    """Return the smaller size; 0 if one is 0, even if the other is unknown."""
    return 0 if 0 in (a, b) else min(a, b)


def _set(out: Array, diagonal: Array, diagonals: _Diagonals) -> Array:
    row, column, valid = diagonals.places(*out.shape[-2:])
    if diagonals.low == diagonals.high:
        diagonal = diagonal[..., None, :]
    if diagonal.shape != (*out.shape[:-2], *valid.shape):
        message = f"diagonals of shape {list(diagonal.shape)} for matrices {list(out.shape)}"
        raise ValueError(message)
    out[..., row[valid], column[valid]] = diagonal[..., valid]
    return out


@kernel("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3", shape=unchanged, flops=free)
def matrix_set_diag(node: Node, x: Array, diagonal: Array, k: Array | None = None) -> Array:
    """Replace the diagonals of matrices."""
    check_matrices(x)
    return _set(x.copy(), diagonal, _Diagonals.of(node, k))


@kernel("Diag", flops=free)
def diag(node: Node, x: Array) -> Array:
    """Create a tensor with the axes of x twice, and x on its diagonal."""
    check_allocation((x.size, x.size), x.dtype)
    return np.diag(x.reshape(-1)).reshape(*x.shape, *x.shape)


@shape_fn("Diag")
def diag_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape, repeated."""
    source = args.shapes[0]
    return [None if source is None else source + source]


@kernel("DiagPart", flops=free)
def diag_part(node: Node, x: Array) -> Array:
    """Extract the diagonal of a tensor whose shape is repeated."""
    half = x.ndim // 2
    if x.shape[:half] != x.shape[half:]:
        message = f"{list(x.shape)} is not twice the same shape"
        raise ValueError(message)
    count = int(np.prod(x.shape[:half]))
    return np.diagonal(x.reshape(count, count)).reshape(x.shape[:half])


@shape_fn("DiagPart")
def diag_part_shape(args: ShapeArgs) -> OutputShapes:
    """Return the first half of the dimensions, merged with the second."""
    source = args.shapes[0]
    if source is None:
        return [None]
    half = len(source) // 2
    return [merge(source[:half], source[half:])]
