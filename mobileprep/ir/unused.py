"""Nodes that lost their last use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container

from mobileprep.ir.colocation import without_dangling
from mobileprep.ir.graph import Graph


def without_newly_unused(before: Graph, after: Graph, protected: Collection[str]) -> Graph:
    """A changed graph without the nodes that the change left without a use.

    Args:
        before: the graph as it was.
        after: the graph as it is.
        protected: names of nodes that stay.
    """
    uses = Counter(r.node for n in after for r in n.inputs)
    waiting = [n for n in after if not uses[n.name] and n.name in before.consumers]
    unused: set[str] = set()
    while waiting:
        node = waiting.pop()
        if node.name in protected:
            continue
        unused.add(node.name)
        for ref in node.inputs:
            uses[ref.node] -= 1
            if not uses[ref.node]:
                waiting.append(after[ref.node])
    kept = [n for n in after if n.name not in unused]
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
