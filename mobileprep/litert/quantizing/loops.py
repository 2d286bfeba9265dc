"""Loops whose bodies compute in integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mobileprep.graph.node import Node
from mobileprep.litert.program import Op, Program, Readers, Value
from mobileprep.litert.quantizing.kernels import KERNELS, Range

_ARITHMETIC: Final = ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "SELECT_V2")


def is_loop(op: Op) -> bool:
    """Return whether an operator is a loop."""
    return op.code == "WHILE"


def prefix_of(loop: Node) -> str:
    """Return how the names of the tensors in a loop's body begin outside of the loop."""
    return f"{loop.name}/"


def ranges_within(loop: Op, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Return the ranges of the tensors in the body of a loop, by their names there.

    Other operators have none.
    """
    if loop.node is None or not is_loop(loop):
        return {}
    prefix = prefix_of(loop.node)
    return {
        name.removeprefix(prefix): span for name, span in ranges.items() if name.startswith(prefix)
    }


def moved_values(body: Program) -> frozenset[Value]:
    """Return the loop variables of which a step only selects elements, such as a sequence."""
    computed = {
        value
        for op in body.ops
        if op.code in KERNELS and KERNELS[op.code].rule != "same"
        for value in op.operands
    }
    return frozenset(port.value for port in body.inputs) - computed


def float_ops(body: Program) -> frozenset[Op]:
    """Return the operators of a loop's body that stay float.

    Those that select elements of a whole sequence would need the integers of all elements in each
    step. Those that compute the next state by arithmetic would add an error in each step.
    """
    moved, readers = moved_values(body), Readers(body)
    chosen = {op for op in body.ops if any(value in moved for value in op.operands)}
    waiting = [port.value for port in body.outputs]
    while waiting:
        maker = readers.maker(waiting.pop(), *_ARITHMETIC)
        if maker is not None and maker not in chosen:
            chosen.add(maker)
            waiting += maker.operands
    return frozenset(chosen)
