"""Sequences, buckets, and sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.types import LONG_NUMBERS, need

_INDICES: Final = frozenset({DType.INT32, DType.INT64})


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


@lowering("BroadcastArgs")
def broadcast_args(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """BROADCAST_ARGS."""
    need(node, inputs, _INDICES)
    return scope.emit("BROADCAST_ARGS", inputs, scope.output_shape(node), inputs[0].dtype)
