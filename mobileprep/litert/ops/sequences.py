"""Segments, sequences, sets and diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.types import LONG_NUMBERS, NAMES, NUMBERS, need

_INDICES: Final = frozenset({DType.INT32, DType.INT64})
_SEGMENTS: Final = {
    "UnsortedSegmentSum": "UNSORTED_SEGMENT_SUM",
    "UnsortedSegmentProd": "UNSORTED_SEGMENT_PROD",
    "UnsortedSegmentMax": "UNSORTED_SEGMENT_MAX",
    "UnsortedSegmentMin": "UNSORTED_SEGMENT_MIN",
}


@lowering("ReverseSequence")
def reverse_sequence(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """REVERSE_SEQUENCE."""
    need(node, inputs[:1], LONG_NUMBERS | {DType.INT16, DType.UINT8})
    need(node, inputs[1:], _INDICES)
    return scope.emit(
        "REVERSE_SEQUENCE",
        inputs,
        scope.output_shape(node),
        inputs[0].dtype,
        "ReverseSequenceOptions",
        seq_dim=node.attr_int("seq_dim"),
        batch_dim=node.attr_int("batch_dim", 0),
    )


@lowering("SegmentSum")
def segment_sum(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """SEGMENT_SUM."""
    need(node, inputs[:1], NUMBERS)
    need(node, inputs[1:], {DType.INT32})
    shape, kind = scope.output_shape(node), inputs[0].dtype
    return scope.emit("SEGMENT_SUM", inputs, shape, kind, "SegmentSumOptions")


@lowering(*_SEGMENTS)
def unsorted_segments(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """A builtin on segments in any order."""
    need(node, inputs[:1], NUMBERS)
    need(node, inputs[1:], {DType.INT32})
    shape, kind = scope.output_shape(node), inputs[0].dtype
    return scope.emit(_SEGMENTS[node.op], inputs, shape, kind, f"{node.op}Options")


@lowering("Unique")
def unique(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """UNIQUE."""
    need(node, inputs, LONG_NUMBERS | {DType.INT16, DType.INT8, DType.UINT8})
    kind = node.attr_dtype("out_idx", DType.INT32)
    outputs = [(scope.output_shape(node), inputs[0].dtype), (scope.output_shape(node, 1), kind)]
    return scope.emit_many("UNIQUE", inputs, outputs, "UniqueOptions", idx_out_type=NAMES[kind])


@lowering("MatrixDiag")
def matrix_diag(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """MATRIX_DIAG."""
    need(node, inputs, LONG_NUMBERS)
    shape, kind = scope.output_shape(node), inputs[0].dtype
    return scope.emit("MATRIX_DIAG", inputs, shape, kind, "MatrixDiagOptions")


@lowering("MatrixSetDiag")
def matrix_set_diag(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """MATRIX_SET_DIAG."""
    need(node, inputs, LONG_NUMBERS)
    shape, kind = scope.output_shape(node), inputs[0].dtype
    return scope.emit("MATRIX_SET_DIAG", inputs, shape, kind, "MatrixSetDiagOptions")


@lowering("BroadcastArgs")
def broadcast_args(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """BROADCAST_ARGS."""
    need(node, inputs, _INDICES)
    return scope.emit("BROADCAST_ARGS", inputs, scope.output_shape(node), inputs[0].dtype)
