"""Nodes that lost their last use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable

from mobileprep.ir.colocation import without_dangling
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node


def unused(graph: Graph, names: Iterable[str], stays: Callable[[Node], bool]) -> set[str]:
    """Which of some nodes nothing uses, and what nothing uses without those.

    Args:
        graph: the graph.
        names: the nodes that may have lost a use; those that are gone may be among them.
        stays: says of a node whether it is left although nothing uses it.
    """
    counts = {name: len(nodes) for name, nodes in graph.consumers.items()}
    waiting = list(names)
    gone: set[str] = set()
    while waiting:
        name = waiting.pop()
        node = graph.get(name)
        if node is None or name in gone or counts.get(name, 0) or stays(node):
            continue
        gone.add(name)
        for source in {r.node for r in node.inputs}:
            counts[source] -= 1
            waiting.append(source)
    return gone


def without_newly_unused(before: Graph, after: Graph, protected: Collection[str]) -> Graph:
    """A changed graph without the nodes that the change left without a use.

    Args:
        before: the graph as it was.
        after: the graph as it is.
        protected: names of nodes that stay.
    """
    gone = unused(after, before.consumers, lambda node: node.name in protected)
    kept = [n for n in after if n.name not in gone]
    return after.with_nodes(without_dangling(kept, {n.name for n in kept}))


def without_orphans(graph: Graph, before: Graph, protected: Container[str]) -> Graph:
    """The graph without the constants that nothing uses any more, though something did before."""
    used = graph.consumers
    return graph.with_nodes(
        node
        for node in graph
        if node.op != "Const"
        or node.name in used
        or node.name in protected
        or node.name not in before.consumers
    )
