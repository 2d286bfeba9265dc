"""Which nodes fill the lookup tables that a computation needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from mobileprep.ir.graph import Graph
from mobileprep.ir.tensor import Array
from mobileprep.ops.actions import edge
from mobileprep.ops.engines.subgraph import known_ref
from mobileprep.ops.selection import needed_nodes

_FILLING: Final = frozenset(
    {
        "InitializeTable",
        "InitializeTableV2",
        "InitializeTableFromTextFile",
        "InitializeTableFromTextFileV2",
    }
)


class TableFiller:
    """Tells which nodes have to run once before a computation; none in a graph without tables.

    Args:
        graph: the graph.
        where: what it is called, for messages.
    """

    def __init__(self, graph: Graph, where: str) -> None:
        self._graph = graph
        self._where = where
        self._left = {n.name: n for n in graph if n.op in _FILLING and n.data_inputs}

    def due(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> Collection[str]:
        """The nodes that fill tables which are needed now and were not needed before."""
        if not self._left:
            return ()
        wanted = [known_ref(self._graph, name, "fetch", self._where) for name in fetches]
        fed = {edge(known_ref(self._graph, name, "feed", self._where)) for name in feeds}
        needed = {n.name for n in needed_nodes(self._graph, wanted, fed, self._where)}
        due = [n.name for n in self._left.values() if n.data_inputs[0].node in needed]
        for name in due:
            del self._left[name]
        return due
