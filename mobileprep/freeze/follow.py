"""Follows tensors of a graph to what they stand for: a variable, a number, a random draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

from mobileprep.errors import UnsupportedError
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref

VARIABLE_OPS: Final = frozenset({"Variable", "VariableV2", "VarHandleOp"})

_SWITCHES: Final = frozenset({"Switch", "RefSwitch"})
_READS: Final = frozenset({"Identity", "ReadVariableOp", "Enter", "RefEnter"}) | _SWITCHES
_ARITHMETIC: Final[dict[str, Callable[[float, float], float]]] = {
    "Add": lambda a, b: a + b,
    "AddV2": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "RealDiv": lambda a, b: a / b if b else math.nan,
    "Div": lambda a, b: a / b if b else math.nan,
}
_DEEPEST: Final = 8


def upstream(graph: Graph, ref: Ref) -> Iterator[tuple[Node, int]]:
    """The producer of a tensor, the producer of its first input, and so on, each node once.

    With each the number of the output that is taken.
    """
    seen: set[str] = set()
    while ref.node not in seen and not ref.is_control:
        seen.add(ref.node)
        node = graph.get(ref.node)
        if node is None:
            return
        yield node, ref.index
        if not node.data_inputs:
            return
        ref = node.inputs[0]


def variable_behind(graph: Graph, ref: Ref) -> Node | None:
    """The variable that a tensor is read from, or None."""
    for node, _ in upstream(graph, ref):
        if node.op in VARIABLE_OPS:
            return node
        if node.op not in _READS:
            return None
    return None


def is_branch_input(graph: Graph, ref: Ref) -> bool:
    """Whether a tensor reaches an op only when a condition chooses the op's branch."""
    node = graph.get(ref.node)
    return node is not None and node.op in _SWITCHES


def number(graph: Graph, ref: Ref, depth: int = 0) -> float | None:
    """The value of a scalar that is constant, simple arithmetic on constants included, or None."""
    node = graph.get(ref.node)
    if node is None or ref.is_control or depth > _DEEPEST:
        return None
    if node.op == "Const":
        return _scalar(node)
    if node.op in ("Identity", "Cast") and node.data_inputs:
        return number(graph, node.inputs[0], depth + 1)
    compute = _ARITHMETIC.get(node.op)
    if compute is None or len(node.data_inputs) != 2:
        return None
    first = number(graph, node.inputs[0], depth + 1)
    second = number(graph, node.inputs[1], depth + 1)
    return None if first is None or second is None else compute(first, second)


def _scalar(node: Node) -> float | None:
    tensor = node.attr_tensor("value")
    if tensor.size != 1 or tensor.dtype.numpy is None:
        return None
    try:
        return float(tensor.array().reshape(())[()])
    except (UnsupportedError, TypeError):  # complex numbers
        return None
