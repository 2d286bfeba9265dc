"""The engine that is always there: our interpreter."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

from mobileprep.ir.graph import Graph
from mobileprep.ir.tensor import Array
from mobileprep.ops.engines.tables import TableFiller
from mobileprep.ops.interpreter import Interpreter


class NumpyEngine:
    """Runs a graph with the interpreter.

    Args:
        graph: the graph.
        where: what the graph is called, for messages.
        threads: how many to use at most, in this process from now on; 0 or less for all.
    """

    name = "numpy"

    def __init__(self, graph: Graph, where: str, threads: int = 0) -> None:
        if threads > 0:
            # The interpreter's threads are as many as BLAS has when it is first used.
            importlib.import_module("threadpoolctl").threadpool_limits(threads, "blas")
        self._interpreter = Interpreter(graph, where=where)
        self._tables = TableFiller(graph, where)

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """See ``Engine.run``. Tables that are needed are filled first."""
        due = self._tables.due(fetches, feeds)
        if due:
            self._interpreter.run(list(due), {})
        return self._interpreter.run(fetches, feeds)
