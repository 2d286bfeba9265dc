"""Reductions, and what finds the largest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import as_int32
from mobileprep.litert.types import FLOATS, LONG_NUMBERS, NAMES, NUMBERS, need

_BOOLS = frozenset({DType.BOOL})
_CODES: Final[dict[str, tuple[str, frozenset[DType]]]] = {
    "Mean": ("MEAN", LONG_NUMBERS),
    "Sum": ("SUM", LONG_NUMBERS),
    "Prod": ("REDUCE_PROD", LONG_NUMBERS),
    "Max": ("REDUCE_MAX", LONG_NUMBERS),
    "Min": ("REDUCE_MIN", LONG_NUMBERS),
    "Any": ("REDUCE_ANY", _BOOLS),
    "All": ("REDUCE_ALL", _BOOLS),
}


@lowering(*_CODES)
def reduction(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """A reduction along axes."""
    code, types = _CODES[node.op]
    need(node, inputs[:1], types)
    value, known = inputs[0], scope.known(node, 1)
    if value.rank == 0 or (known is not None and not known.size):
        return value
    axes = as_int32(scope, node, 1, inputs[1])
    if axes.data is not None:
        axes = scope.integers_constant(axes.data.reshape(-1), "axes")
    keep = node.attr_bool("keep_dims", False)
    return scope.emit(
        code,
        [value, axes],
        scope.output_shape(node),
        value.dtype,
        "ReducerOptions",
        keep_dims=keep,
    )


@lowering("ArgMax", "ArgMin")
def arg(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """ARG_MAX and ARG_MIN."""
    need(node, inputs[:1], {*NUMBERS, DType.INT8, DType.UINT8, DType.BOOL})
    kind = node.attr_dtype("output_type", DType.INT64)
    if kind not in (DType.INT32, DType.INT64):
        msg = f"its indices are {kind.short}"
        raise CannotExpressError(msg, "let them be int32 or int64")
    axis = as_int32(scope, node, 1, inputs[1])
    code, table = (
        ("ARG_MAX", "ArgMaxOptions") if node.op == "ArgMax" else ("ARG_MIN", "ArgMinOptions")
    )
    shape, values = scope.output_shape(node), [inputs[0], axis]
    return scope.emit(code, values, shape, kind, table, output_type=NAMES[kind])


@lowering("TopKV2")
def top_k(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """TOPK_V2."""
    need(node, inputs[:1], {*LONG_NUMBERS, DType.UINT8, DType.INT8})
    shape = scope.output_shape(node)
    outputs = [(shape, inputs[0].dtype), (shape, DType.INT32)]
    return scope.emit_many("TOPK_V2", inputs, outputs, "TopKV2Options")


@lowering("L2Loss")
def l2_loss(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """sum(x * x) / 2."""
    need(node, inputs, FLOATS)
    value = inputs[0]
    if value.rank is None:
        msg = "the rank of its input is not known"
        raise CannotExpressError(msg, GIVE_SHAPES)
    squares = scope.emit("SQUARE", [value], value.shape, value.dtype)
    axes = scope.integers_constant(range(value.rank), "axes")
    total = scope.emit("SUM", [squares, axes], (), value.dtype, "ReducerOptions", keep_dims=False)
    half = scope.constant(np.array(0.5, np.float32))
    return scope.emit("MUL", [total, half], (), value.dtype, "MulOptions")
