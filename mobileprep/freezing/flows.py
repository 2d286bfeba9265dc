"""Where the tensors of a graph go, worked out once: control dependencies carry none."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.reachability import closure, reachable
from mobileprep.ir.refs import Ref


class Flows:
    """The takers of every node's tensors.

    Each edge is looked at once: a node may have thousands of control inputs, and walking them
    again for each tensor would make a walk grow with the square of a graph.

    Args:
        graph: every input names one of its nodes.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._takers: dict[str, list[tuple[Node, int]]] = {}
        for node in graph:
            for ref in dict.fromkeys(node.data_inputs):
                self._takers.setdefault(ref.node, []).append((node, ref.index))

    def takers(self, name: str) -> Sequence[tuple[Node, int]]:
        """The nodes that take a tensor of a node, each with the number of that output."""
        return self._takers.get(name, ())

    def is_used(self, name: str) -> bool:
        """Whether a node takes a tensor of a node, or waits for it."""
        return name in self._graph.consumers

    def takes(self, ref: Ref, names: Container[str]) -> bool:
        """Whether one of the named nodes takes a tensor."""
        return any(n.name in names for n, index in self.takers(ref.node) if index == ref.index)

    def downstream(self, refs: Iterable[Ref], *, past: Container[str] = ()) -> set[str]:
        """The nodes that tensors flow into, directly or not.

        Args:
            refs: the tensors.
            past: names of nodes that nothing flows into.
        """
        starts = (n for ref in refs for n, index in self.takers(ref.node) if index == ref.index)

        def takers(name: str) -> Iterable[str]:
            return (node.name for node, _ in self.takers(name) if node.name not in past)

        return closure((n.name for n in starts if n.name not in past), takers)

    def leading_to(self, names: Iterable[str]) -> set[str]:
        """The named nodes, and all whose tensors flow into them, directly or not."""
        return reachable(self._graph, names, through_control=False)
