"""Takes off control inputs that carry nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from mobileprep.ir.graph import Graph
from mobileprep.ir.identities import IDENTITIES
from mobileprep.ir.order import execution_order
from mobileprep.ir.unused import without_newly_unused

_IDLE: Final = IDENTITIES | {"Const", "NoOp"}


def without_idle_controls(graph: Graph, protected: Collection[str]) -> Graph:
    """The graph without control inputs from constants, and without what only they kept there.

    A constant is there before anything runs, and so are the Identity and NoOp nodes that take
    nothing but constants: waiting for them is no order. TensorFlow 2 leaves many such edges,
    from each weight to one NoOp, which then count as uses of the weights. A constant that itself
    waits for a Switch or an Enter lies in a branch or a loop; edges from it stay.

    Args:
        graph: the graph; it is the result too where no edge goes.
        protected: names of nodes that must survive.
    """
    if not any(r.is_control for n in graph for r in n.inputs):
        return graph
    idle = _idle(graph)
    nodes = []
    for node in graph:
        kept = tuple(r for r in node.inputs if not (r.is_control and r.node in idle))
        nodes.append(node if len(kept) == len(node.inputs) else replace(node, inputs=kept))
    if all(a is b for a, b in zip(nodes, graph, strict=True)):
        return graph
    return without_newly_unused(graph, graph.with_nodes(nodes), protected)


def _idle(graph: Graph) -> frozenset[str]:
    """The nodes that have nothing to wait for."""
    idle: set[str] = set()
    for node in execution_order(graph):
        if node.op in _IDLE and all(r.node in idle for r in node.inputs):
            idle.add(node.name)
    return frozenset(idle)
