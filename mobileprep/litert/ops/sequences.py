"""Sequences turned round, random numbers."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.types import LONG_NUMBERS, need


@lowering("ReverseSequence")
def reverse_sequence(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """REVERSE_SEQUENCE."""
    need(node, inputs[:1], LONG_NUMBERS)
    return scope.emit(
        "REVERSE_SEQUENCE",
        inputs,
        inputs[0].shape,
        inputs[0].dtype,
        "ReverseSequenceOptions",
        seq_dim=node.attr_int("seq_dim"),
        batch_dim=node.attr_int("batch_dim", 0),
    )


@lowering("RandomUniform")
def random_uniform(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """RANDOM_UNIFORM: other numbers than TensorFlow draws, of the same distribution."""
    kind = node.attr_dtype("dtype")
    if kind is not DType.FLOAT:
        reason = f"LiteRT draws float32, not {kind.short}"
        raise CannotExpressError(reason, "leave dropout out: remove_dropout, or choose_inference")
    need(node, inputs, {DType.INT32})
    seeds = {name: node.attr_int(name, 0) for name in ("seed", "seed2")}
    shape = scope.output_shape(node)
    return scope.emit("RANDOM_UNIFORM", inputs, shape, kind, "RandomOptions", **seeds)
