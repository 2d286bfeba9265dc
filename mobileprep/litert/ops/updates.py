"""Tensors with some rows replaced, as loops fill what they carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import as_int32, reshaped
from mobileprep.litert.types import need

_MOVED: Final = frozenset({DType.FLOAT, DType.INT32, DType.INT64, DType.BOOL, DType.INT8})
_COMPUTED: Final = frozenset({DType.FLOAT, DType.INT32, DType.INT64})


@lowering("TensorScatterUpdate")
def tensor_scatter_update(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """DYNAMIC_UPDATE_SLICE for one row; SCATTER_ND and a choice for many."""
    target, indices, rows = inputs
    if target.rank is None or indices.shape is None or indices.shape[-1:] != (1,):
        reason = "its indices are no column of row numbers"
        raise CannotExpressError(reason, "give a tensor of known rank, and one index a row")
    indices = as_int32(scope, node, 1, indices)
    indices, rows = _last_rows(scope, node, indices, rows)
    if indices.shape == (1, 1):
        return _one_row(scope, node, (target, indices, rows))
    if target.dtype is DType.BOOL:
        whole = [_cast(scope, value, DType.INT32) for value in (target, rows)]
        return _cast(scope, _many_rows(scope, whole[0], indices, whole[1]), DType.BOOL)
    need(node, [target], _COMPUTED)
    return _many_rows(scope, target, indices, rows)


def _cast(scope: Scope, value: Value, kind: DType) -> Value:
    kinds = {"in_data_type": value.dtype.name, "out_data_type": kind.name}
    return scope.emit("CAST", [value], value.shape, kind, "CastOptions", **kinds)


def _many_rows(scope: Scope, target: Value, indices: Value, rows: Value) -> Value:
    """The target with rows at computed indices."""
    assert target.rank is not None
    kind = target.dtype
    shape, options = (target.rank,), {"out_type": "INT32"}
    sizes = scope.emit("SHAPE", [target], shape, DType.INT32, "ShapeOptions", **options)
    ones = scope.emit("ZEROS_LIKE", [rows], rows.shape, kind, "ZerosLikeOptions")
    one = scope.constant(np.array(1, kind.numpy))
    marks = scope.emit("ADD", [ones, one], rows.shape, kind, "AddOptions")
    placed, marked = (
        scope.emit("SCATTER_ND", [indices, values, sizes], target.shape, kind, "ScatterNdOptions")
        for values in (rows, marks)
    )
    zero = scope.constant(np.array(0, kind.numpy))
    where = scope.emit("GREATER", [marked, zero], target.shape, DType.BOOL, "GreaterOptions")
    chosen = [where, placed, target]
    return scope.emit("SELECT_V2", chosen, target.shape, kind, "SelectV2Options")


def _last_rows(scope: Scope, node: Node, indices: Value, rows: Value) -> tuple[Value, Value]:
    """Indices and rows without those that later ones replace, as far as the indices are known."""
    known = scope.known(node, 1)
    if known is None:
        return indices, rows
    last = {int(place): number for number, place in enumerate(known.reshape(-1))}
    if len(last) == known.size or not last:
        return indices, rows
    shape = (len(last), 1)
    places = scope.integers_constant(np.reshape([*last], shape), "places")
    numbers = scope.integers_constant([*last.values()], "rows")
    kept = None if rows.shape is None else (len(last), *rows.shape[1:])
    options = {"axis": 0, "batch_dims": 0}
    taken = scope.emit("GATHER", [rows, numbers], kept, rows.dtype, "GatherOptions", **options)
    return places, taken


def _one_row(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    target, indices, rows = inputs
    need(node, [target], _MOVED)
    start = reshaped(scope, indices, (1,))
    if target.rank is not None and target.rank > 1:
        rest = scope.integers_constant([0] * (target.rank - 1), "start")
        parts = [start, rest]
        start = scope.emit(
            "CONCATENATION", parts, (target.rank,), DType.INT32, "ConcatenationOptions", axis=0
        )
    values = [target, rows, start]
    return scope.emit("DYNAMIC_UPDATE_SLICE", values, target.shape, target.dtype)
