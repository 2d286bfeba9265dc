"""The engine that is always there: our interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mobileprep.ir.graph import Graph
from mobileprep.ir.tensor import Array
from mobileprep.ops.interpreter import Interpreter


class NumpyEngine:
    """Runs a graph with the interpreter.

    Args:
        graph: the graph.
        where: what the graph is called, for messages.
    """

    name = "numpy"

    def __init__(self, graph: Graph, where: str) -> None:
        self._interpreter = Interpreter(graph, where=where)

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """See ``Engine.run``."""
        return self._interpreter.run(fetches, feeds)
