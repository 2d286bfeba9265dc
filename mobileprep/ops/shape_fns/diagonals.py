"""Shapes of ops on the diagonals of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.dims import (
    UNKNOWN,
    merge,
)
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn


@shape_fn("Diag")
def diag(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's dimensions twice."""
    source = args.shapes[0]
    return [None if source is None else source + source]


@shape_fn("DiagPart")
def diag_part(args: ShapeArgs) -> Sequence[TensorShape]:
    """The first half of the dimensions, merged with the second."""
    source = args.shapes[0]
    if source is None:
        return [None]
    half = len(source) // 2
    return [merge(source[:half], source[half:])]


@shape_fn("MatrixBandPart")
def matrix_band_part(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape."""
    return [args.shapes[0]]


@shape_fn("MatrixDiag")
def matrix_diag(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input with its last dimension twice."""
    source = args.shapes[0]
    return [None if source is None else (*source, source[-1])]


@shape_fn("MatrixDiagPart")
def matrix_diag_part(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input with the smaller of its last two dimensions in their place."""
    source = args.shapes[0]
    if source is None:
        return [None]
    rows, columns = source[-2:]
    least = UNKNOWN if min(rows, columns) < 0 else min(rows, columns)
    return [(*source[:-2], least)]


@shape_fn("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")
def matrix_set_diag(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape."""
    return [args.shapes[0]]
