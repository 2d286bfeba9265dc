"""Segments, sequences and sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.litert.program import Value
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import as_int32
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


@lowering("Bucketize")
def bucketize(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """BUCKETIZE."""
    need(node, inputs, LONG_NUMBERS | {DType.DOUBLE})
    return scope.emit(
        "BUCKETIZE",
        inputs,
        inputs[0].shape,
        DType.INT32,
        "BucketizeOptions",
        boundaries=node.attr_floats("boundaries", ()),
    )


@lowering("SegmentSum")
def segment_sum(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """SEGMENT_SUM, or UNSORTED_SEGMENT_SUM where constant segments have gaps."""
    need(node, inputs[:1], NUMBERS)
    values = [inputs[0], as_int32(scope, node, 1, inputs[1])]
    shape, kind = scope.output_shape(node), inputs[0].dtype
    steps = _steps(scope, node)
    if (steps <= 1).all():
        return scope.emit("SEGMENT_SUM", values, shape, kind, "SegmentSumOptions")
    # SEGMENT_SUM ends the run at a gap; those of computed segments are not known before.
    rows = int(steps.sum())
    made = None if shape is None else (rows, *shape[1:])
    values.append(scope.constant(np.int32(rows), "num_segments"))
    table = "UnsortedSegmentSumOptions"
    return scope.emit("UNSORTED_SEGMENT_SUM", values, made, kind, table)


def _steps(scope: Scope, node: Node) -> Array:
    """By how much each segment of constant ones is above the one before, the first above -1.

    Raises:
        ValueError: one is below the one before.
    """
    known = scope.known(node, 1)
    if known is None:
        return np.zeros(0, np.int64)
    steps = np.diff(known.reshape(-1).astype(np.int64), prepend=-1)
    if (steps < 0).any() or not steps[:1].all():
        message = "its segments are not in ascending order from 0 on"
        raise ValueError(message)
    return steps


@lowering(*_SEGMENTS)
def unsorted_segments(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """A builtin on segments in any order."""
    need(node, inputs[:1], NUMBERS)
    values = [inputs[0], *(as_int32(scope, node, i, inputs[i]) for i in (1, 2))]
    shape, kind = scope.output_shape(node), inputs[0].dtype
    return scope.emit(_SEGMENTS[node.op], values, shape, kind, f"{node.op}Options")


@lowering("Unique")
def unique(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """UNIQUE."""
    need(node, inputs, LONG_NUMBERS | {DType.INT16, DType.INT8, DType.UINT8})
    kind = node.attr_dtype("out_idx", DType.INT32)
    outputs = [(scope.output_shape(node), inputs[0].dtype), (scope.output_shape(node, 1), kind)]
    return scope.emit_many("UNIQUE", inputs, outputs, "UniqueOptions", idx_out_type=NAMES[kind])


@lowering("BroadcastArgs")
def broadcast_args(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """BROADCAST_ARGS."""
    need(node, inputs, _INDICES)
    return scope.emit("BROADCAST_ARGS", inputs, scope.output_shape(node), inputs[0].dtype)
