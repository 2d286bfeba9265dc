"""Which nodes fill the lookup tables that a computation needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import PLACEHOLDERS
from mobileprep.ir.refs import Ref, edge
from mobileprep.ir.tensor import Array
from mobileprep.opdefs.table_ops import FILLERS
from mobileprep.runtime.engines.subgraph import known_ref
from mobileprep.runtime.selection import needed_nodes


class TableFiller:
    """Tells which nodes have to run once before a computation; none in a graph without tables.

    What a graph enters while it runs, such as the words that it is fed, does not count.

    Args:
        graph: the graph.
        where: what it is called, for messages.
    """

    def __init__(self, graph: Graph, where: str) -> None:
        self._graph = graph
        self._where = where
        self._left = {n.name: n for n in graph if n.op in FILLERS and n.data_inputs}

    def due(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> Collection[str]:
        """The nodes that fill tables which are needed now and were not needed before."""
        if not self._left:
            return ()
        wanted = [known_ref(self._graph, name, "fetch", self._where) for name in fetches]
        fed = {edge(known_ref(self._graph, name, "feed", self._where)) for name in feeds}
        needed = {n.name for n in needed_nodes(self._graph, wanted, fed, self._where)}
        due = [n for n in self._left.values() if n.data_inputs[0].node in needed]
        for node in due:
            del self._left[node.name]
        return [n.name for n in due if self._is_ready(n)]

    def _is_ready(self, node: Node) -> bool:
        """Whether nothing has to be fed for it."""
        needed = needed_nodes(self._graph, [Ref(node.name, 0)], set(), self._where)
        return not any(n.op in PLACEHOLDERS for n in needed)
