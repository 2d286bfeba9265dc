"""An order in which nodes can run: the one in which the Graph Transform Tool looks at them."""

from __future__ import annotations

from typing import Final

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node

_MERGES: Final = frozenset({"Merge", "RefMerge", "_XlaMerge"})


def execution_order(graph: Graph) -> list[Node]:
    """Nodes after what they take; of those that are ready, the one found last comes next.

    A Merge waits for its control inputs and one tensor, so that while loops can be sorted.
    Nodes of a cycle, and nodes that need one, are left out; so are consumers of nodes that are
    not there. Source: ``SortByExecutionOrder`` of TensorFlow 1.15's graph transforms.
    """
    nodes = graph.nodes
    position = {node.name: i for i, node in enumerate(nodes)}
    consumers: list[list[int]] = [[] for _ in nodes]
    pending: list[int] = []
    ready: list[int] = []
    for i, node in enumerate(nodes):
        inputs = node.inputs
        if node.op in _MERGES:
            pending.append(len(node.control_inputs) + 1)
        else:
            pending.append(len(inputs))
        if not inputs:
            ready.append(i)
        for ref in inputs:
            producer = position.get(ref.node)
            if producer is not None:
                consumers[producer].append(i)
    order: list[Node] = []
    while ready:
        i = ready.pop()
        order.append(nodes[i])
        for consumer in consumers[i]:
            pending[consumer] -= 1
            if not pending[consumer]:
                ready.append(consumer)
    return order
