"""Follows tensors of a graph to what they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import ENTERS, SWITCHES
from mobileprep.ir.refs import Ref

VARIABLE_OPS: Final = frozenset({"Variable", "VariableV2", "VarHandleOp"})

_WAYS_IN: Final = ENTERS | SWITCHES
_READS: Final = frozenset({"Identity", "ReadVariableOp"}) | _WAYS_IN


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


def is_inside(graph: Graph, node: Node) -> bool:
    """Whether an op that takes a variable first stands in a loop or a branch.

    A variable gets there only through Enter or Switch.
    """
    return bool(node.data_inputs) and any(
        n.op in _WAYS_IN for n, _ in upstream(graph, node.inputs[0])
    )


def is_branch_input(graph: Graph, ref: Ref) -> bool:
    """Whether a tensor reaches an op only when a condition chooses the op's branch."""
    node = graph.get(ref.node)
    return node is not None and node.op in SWITCHES
