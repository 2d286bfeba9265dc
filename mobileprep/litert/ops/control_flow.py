"""Loops and conditionals that run functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Options
from mobileprep.ir.node import Node
from mobileprep.litert.program import Op, Port, Program, Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope

_MOST_BRANCHES: Final = 64


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


@lowering("Case", "StatelessCase")
def case(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """An IF for each branch but the last, which all other numbers take, in the one before."""
    branches = node.attribute("branches").value
    kinds = node.attr_dtypes("Tout")
    if not 0 < len(branches) <= _MOST_BRANCHES or not kinds:
        reason = f"it chooses among {len(branches)} branches"
        raise CannotExpressError(reason, f"give it at most {_MOST_BRANCHES}")
    programs = [_numbered(scope.function(func.name, inputs[1:])) for func in branches]
    rest = programs.pop()
    for place in reversed(range(1, len(programs))):
        rest = _chosen(place, programs[place], rest)
    outputs = [(scope.output_shape(node, i), kind) for i, kind in enumerate(kinds)]
    ways = (programs[0], rest) if programs else (rest, rest)
    number = scope.constant(np.array(0, np.int32), "number")
    first = scope.emit("EQUAL", [inputs[0], number], (), DType.BOOL, "EqualOptions")
    return scope.emit_running("IF", [first, *inputs], outputs, "IfOptions", ways)


def _numbered(program: Program) -> Program:
    """A branch that is given the number that was chosen, too."""
    port = Port("branch_number", Value("branch_number", DType.INT32, ()))
    return replace(program, inputs=(port, *program.inputs))


def _chosen(place: int, program: Program, rest: Program) -> Program:
    """What runs a branch where its number was chosen, and the rest elsewhere."""
    given = tuple(Port(p.name, replace(p.value)) for p in program.inputs)
    made = tuple(
        Port(p.name, replace(p.value, name=f"{p.name}_chosen", data=None)) for p in program.outputs
    )
    number = Value("number", DType.INT32, (), np.array(place, np.int32))
    is_this = Value("is_this", DType.BOOL, ())
    inputs = (is_this, *(p.value for p in given))
    outputs = tuple(p.value for p in made)
    ops = (
        Op("EQUAL", (given[0].value, number), (is_this,), Options("EqualOptions")),
        Op("IF", inputs, outputs, Options("IfOptions"), subgraphs=(program, rest)),
    )
    return Program(given, made, ops, f"{program.name}_or_later")
