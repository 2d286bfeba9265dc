"""Loops and conditionals that run functions."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope


@lowering("While", "StatelessWhile")
def while_(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """WHILE, whose condition and body are subgraphs."""
    turning = [
        Value(value.name, value.dtype, scope.output_shape(node, i))
        for i, value in enumerate(inputs)
    ]
    names = (node.attr_func("cond").name, node.attr_func("body").name)
    programs = [scope.function(name, turning) for name in names]
    outputs = [(value.shape, value.dtype) for value in turning]
    return scope.emit_running("WHILE", inputs, outputs, "WhileOptions", programs)


@lowering("If", "StatelessIf")
def if_(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """IF, whose branches are subgraphs."""
    if not node.attr_dtypes("Tout"):
        message = "it gives nothing"
        raise CannotExpressError(message, "leave it out")
    names = (node.attr_func("then_branch").name, node.attr_func("else_branch").name)
    programs = [scope.function(name, inputs[1:]) for name in names]
    kinds = node.attr_dtypes("Tout")
    outputs = [(scope.output_shape(node, i), kind) for i, kind in enumerate(kinds)]
    return scope.emit_running("IF", inputs, outputs, "IfOptions", programs)
