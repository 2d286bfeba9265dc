"""What comes after nodes of a graph."""

from __future__ import annotations

from collections.abc import Iterable

from mobileprep.ir.graph import Graph


def dependents(graph: Graph, names: Iterable[str]) -> frozenset[str]:
    """The named nodes and all that depend on one of them, by data or control, directly or not."""
    found = set(names)
    waiting = list(found)
    while waiting:
        for consumer in graph.consumers.get(waiting.pop(), ()):
            if consumer.name not in found:
                found.add(consumer.name)
                waiting.append(consumer.name)
    return frozenset(found)
