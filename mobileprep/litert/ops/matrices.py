"""Diagonals and bands of matrices, and running products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.litert.ops.math import number
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import known_size
from mobileprep.litert.types import LONG_NUMBERS, need

_BOOLS: Final = frozenset({DType.BOOL})
# LiteRT repeats what it selects from along so many dimensions at most.
_MOST_DIMENSIONS: Final = 5
# A running product takes this many times the memory of its input.
_LONGEST: Final = 256


@lowering("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3")
def matrix_diag(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """MATRIX_DIAG, whose matrices are square, with zeros beside their main diagonal."""
    need(node, inputs[:1], LONG_NUMBERS)
    if inputs[0].rank == 0:
        message = "its diagonal is a single number"
        raise CannotExpressError(message, "give a diagonal of one dimension or more")
    if node.op != "MatrixDiag":
        _need_main_diagonal(scope, node)
        _need_square(scope, node, inputs[0])
    shape, kind = scope.output_shape(node), inputs[0].dtype
    return scope.emit("MATRIX_DIAG", inputs[:1], shape, kind, "MatrixDiagOptions")


@lowering("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")
def matrix_set_diag(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """MATRIX_SET_DIAG, which sets the main diagonal."""
    need(node, inputs[:2], LONG_NUMBERS)
    if node.op != "MatrixSetDiag":
        _need_main_diagonal(scope, node)
    shape, kind = scope.output_shape(node), inputs[0].dtype
    return scope.emit("MATRIX_SET_DIAG", inputs[:2], shape, kind, "MatrixSetDiagOptions")


@lowering("MatrixBandPart")
def matrix_band_part(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """SELECT_V2 between the matrices and zero, by a constant that tells the band."""
    value = inputs[0]
    need(node, [value], LONG_NUMBERS | _BOOLS)
    rows, columns = np.ogrid[: known_size(value, -2), : known_size(value, -1)]
    (below,), (above,) = (scope.integers(node, i, "band") for i in (1, 2))
    band = ((below < 0) | (rows - columns <= below)) & ((above < 0) | (columns - rows <= above))
    shape, kept = scope.output_shape(node), scope.constant(band, "band")
    if value.dtype is DType.BOOL:
        return scope.emit("LOGICAL_AND", [value, kept], shape, DType.BOOL, "LogicalAndOptions")
    return _selected(scope, kept, value, 0, shape or ())


@lowering("Cumprod")
def cumprod(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """REDUCE_PROD of the input for each place, with ones where it does not reach."""
    value = inputs[0]
    need(node, [value], LONG_NUMBERS)
    (axis,) = scope.integers(node, 1, "axis")
    count = known_size(value, axis)
    if count > _LONGEST:
        message = f"it runs along {count} numbers, of at most {_LONGEST}"
        raise CannotExpressError(message, "cut the graph before it, and feed what it computes")
    sizes = value.shape or ()
    axis %= len(sizes)
    apart = scope.emit(
        "EXPAND_DIMS",
        [value, scope.integers_constant([axis], "axis")],
        (*sizes[:axis], 1, *sizes[axis:]),
        value.dtype,
        "ExpandDimsOptions",
    )
    reached = _reached(node, count).reshape(count, count, *(1,) * (len(sizes) - axis - 1))
    spread = (*sizes[:axis], count, *sizes[axis:])
    factors = _selected(scope, scope.constant(reached, "reached"), apart, 1, spread)
    along = scope.integers_constant([axis + 1], "axes")
    table, shape = "ReducerOptions", scope.output_shape(node)
    return scope.emit("REDUCE_PROD", [factors, along], shape, value.dtype, table, keep_dims=False)


def _reached(node: Node, count: int) -> Array:
    """For each place of a running product whether it has the factor at each place."""
    here, there = np.ogrid[:count, :count]
    if node.attr_bool("reverse", False):
        here, there = there, here
    return np.asarray(there < here if node.attr_bool("exclusive", False) else there <= here)


def _selected(
    scope: Scope, chosen: Value, value: Value, otherwise: int, shape: tuple[int, ...]
) -> Value:
    """A value where a constant says so, and a number elsewhere."""
    if len(shape) > _MOST_DIMENSIONS:
        message = (
            f"LiteRT selects from {_MOST_DIMENSIONS} dimensions at most, not from {len(shape)}"
        )
        raise CannotExpressError(message, "reshape its input before it")
    values = [chosen, value, number(scope, value, otherwise)]
    return scope.emit("SELECT_V2", values, shape, value.dtype, "SelectV2Options")


def _need_main_diagonal(scope: Scope, node: Node) -> None:
    index = 2 if node.op.startswith("MatrixSetDiag") else 1
    if any(scope.integers(node, index, "diagonal")):
        message = "it has another diagonal than the main one"
        raise CannotExpressError(message, "cut the graph before it, and feed what it computes")


def _need_square(scope: Scope, node: Node, diagonal: Value) -> None:
    length = -1 if diagonal.shape is None else diagonal.shape[-1]
    told = (size for i in (2, 3) for size in scope.integers(node, i, "size"))
    if any(size not in (-1, length) for size in told):
        message = "its matrices are larger than the diagonal"
        raise CannotExpressError(message, "pad them afterwards")
    if np.any(scope.needed(node, 4, "padding")):
        message = "it has other numbers than zero beside the diagonal"
        raise CannotExpressError(message, "set the diagonal of a constant")
