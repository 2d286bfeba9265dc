"""Removes nodes that lost their last use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from mobileprep.ir.graph import Graph
from mobileprep.transforms._colocation import without_dangling


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
