"""Ops on diagonals and bands of matrices, and of linear algebra."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import check_allocation, integers, scalar
from mobileprep.ops.common_costs import free
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import UNKNOWN, at_least_rank, broadcast, concatenate, merge, merge_dim
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("MatrixBandPart")
def matrix_band_part(node: Node, x: Array, lower: Array, upper: Array) -> Array:
    """x with zeros outside a band; a negative width keeps all on that side."""
    _check_matrix(x)
    below, above = scalar(lower), scalar(upper)
    rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
    kept = ((below < 0) | (rows - columns <= below)) & ((above < 0) | (columns - rows <= above))
    return np.where(kept, x, x.dtype.type(0))


@shape_fn("MatrixBandPart")
def matrix_band_part_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape."""
    return [args.shapes[0]]


flop_rule("MatrixBandPart")(free)


def _check_matrix(x: Array) -> None:
    if x.ndim < 2:
        message = f"expected matrices, found the shape {list(x.shape)}"
        raise ValueError(message)


@dataclass(frozen=True, slots=True)
class _Diagonals:
    """Some adjacent diagonals of a matrix, as they lie in a tensor [.., diagonals, length].

    Args:
        low, high: the lowest and the highest, 0 for the main one, negative below it.
        align: where short diagonals stand: above and below the main one, e.g. "RIGHT_LEFT".
    """

    low: int
    high: int
    align: str

    @classmethod
    def of(cls, node: Node, k: Array | None) -> _Diagonals:
        """The diagonals that a node's input and attribute tell."""
        band = (0,) if k is None else integers(k)
        if len(band) not in (1, 2) or band[0] > band[-1]:
            message = f"{list(band)} are no diagonals"
            raise ValueError(message)
        default = "RIGHT_LEFT" if node.op.endswith("V3") else "LEFT_LEFT"
        return cls(band[0], band[-1], node.attr_str("align", default))

    def places(self, rows: int, columns: int) -> tuple[Array, Array, Array]:
        """For each place [diagonals, length] its row and column, and whether it is on one."""
        length = min(rows + min(self.high, 0), columns - max(self.low, 0))
        numbers = np.arange(self.high, self.low - 1, -1).reshape(-1, 1)
        sizes = np.minimum(rows + np.minimum(numbers, 0), columns - np.maximum(numbers, 0))
        above, below = self.align.split("_")
        right = np.where(numbers >= 0, above == "RIGHT", below == "RIGHT")
        step = np.arange(max(length, 0)) - np.where(right, length - sizes, 0)
        valid = (step >= 0) & (step < sizes)
        row = np.where(valid, step - np.minimum(numbers, 0), 0)
        column = np.where(valid, step + np.maximum(numbers, 0), 0)
        return row, column, valid


@kernel("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3")
def matrix_diag_part(
    node: Node, x: Array, k: Array | None = None, padding: Array | None = None
) -> Array:
    """The diagonals of matrices, shorter ones filled up."""
    _check_matrix(x)
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
def matrix_diag_part_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input with the smaller of its last two dimensions in their place."""
    source = args.shapes[0]
    if source is None:
        return [None]
    rows, columns = source[-2:]
    least = UNKNOWN if min(rows, columns) < 0 else min(rows, columns)
    return [(*source[:-2], least)]


flop_rule("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3")(free)


@kernel("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3")
def matrix_diag(
    node: Node,
    diagonal: Array,
    k: Array | None = None,
    rows: Array | None = None,
    columns: Array | None = None,
    padding: Array | None = None,
) -> Array:
    """Matrices with given diagonals."""
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
def matrix_diag_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input with its last dimension twice."""
    source = args.shapes[0]
    return [None if source is None else (*source, source[-1])]


flop_rule("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3")(free)


def _set(out: Array, diagonal: Array, diagonals: _Diagonals) -> Array:
    row, column, valid = diagonals.places(*out.shape[-2:])
    if diagonals.low == diagonals.high:
        diagonal = diagonal[..., None, :]
    if diagonal.shape != (*out.shape[:-2], *valid.shape):
        message = f"diagonals of shape {list(diagonal.shape)} for matrices {list(out.shape)}"
        raise ValueError(message)
    out[..., row[valid], column[valid]] = diagonal[..., valid]
    return out


@kernel("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")
def matrix_set_diag(node: Node, x: Array, diagonal: Array, k: Array | None = None) -> Array:
    """Matrices with their diagonals replaced."""
    _check_matrix(x)
    return _set(x.copy(), diagonal, _Diagonals.of(node, k))


@shape_fn("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")
def matrix_set_diag_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape."""
    return [args.shapes[0]]


flop_rule("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")(free)


@kernel("Diag")
def diag(node: Node, x: Array) -> Array:
    """A tensor of twice the axes with x on its diagonal."""
    check_allocation((x.size, x.size), x.dtype)
    return np.diag(x.reshape(-1)).reshape(*x.shape, *x.shape)


@shape_fn("Diag")
def diag_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's dimensions twice."""
    source = args.shapes[0]
    return [None if source is None else source + source]


flop_rule("Diag")(free)


@kernel("DiagPart")
def diag_part(node: Node, x: Array) -> Array:
    """The diagonal of a tensor whose axes are twice the same."""
    half = x.ndim // 2
    if x.shape[:half] != x.shape[half:]:
        message = f"{list(x.shape)} is not twice the same shape"
        raise ValueError(message)
    count = int(np.prod(x.shape[:half]))
    return np.diagonal(x.reshape(count, count)).reshape(x.shape[:half])


@shape_fn("DiagPart")
def diag_part_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The first half of the dimensions, merged with the second."""
    source = args.shapes[0]
    if source is None:
        return [None]
    half = len(source) // 2
    return [merge(source[:half], source[half:])]


flop_rule("DiagPart")(free)


@kernel("MatrixInverse", "Cholesky", "MatrixDeterminant", "MatrixSolve")
def linear_algebra(node: Node, x: Array, *rest: Array) -> Array:
    """Inverse, Cholesky factor, determinant or solution of matrices."""
    _check_matrix(x)
    adjoint = node.attr_bool("adjoint", False)
    source = np.conj(np.swapaxes(x, -1, -2)) if adjoint else x
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


@shape_fn("Cross")
def cross_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The common shape of both inputs."""
    return [merge(args.shapes[0], args.shapes[1])]
