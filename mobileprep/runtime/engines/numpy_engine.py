"""The engine that is always there: our interpreter."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.context import Observer, Printer
from mobileprep.runtime.engines.subgraph import TableFiller
from mobileprep.runtime.interpreter import Interpreter


class NumpyEngine:
    """Runs a graph with the interpreter.

    Args:
        graph: the graph.
        where: what the graph is called, for messages.
        threads: how many to use at most, in this process from now on; 0 or less for all.
        combine, observer, seed, printer: as the interpreter's; filling tables is not observed.
    """

    name = "numpy"

    def __init__(
        self,
        graph: Graph,
        where: str,
        threads: int = 0,
        *,
        combine: bool = True,
        observer: Observer | None = None,
        seed: int | None = None,
        printer: Printer | None = None,
    ) -> None:
        if threads > 0:
            # The interpreter's threads are as many as BLAS has when it is first used.
            importlib.import_module("threadpoolctl").threadpool_limits(threads, "blas")
        self._switch = None if observer is None else _Switch(observer)
        self._interpreter = Interpreter(
            graph,
            where=where,
            combine=combine,
            observer=self._switch,
            seed=seed,
            printer=printer,
        )
        self._tables = TableFiller(graph, where)

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """See ``Engine.run``. Tables that are needed are filled first."""
        due = self._tables.due(fetches, feeds)
        if due:
            self._fill(list(due))
        return self._interpreter.run(fetches, feeds)

    def _fill(self, nodes: Sequence[str]) -> None:
        if self._switch is None:
            self._interpreter.run(nodes, {})
            return
        self._switch.on = False
        self._interpreter.run(nodes, {})
        self._switch.on = True


class _Switch:
    """Passes on what is observed while it is on."""

    def __init__(self, observer: Observer) -> None:
        self.on = True
        self._observer = observer

    def __call__(
        self, nodes: Sequence[Node], start: float, seconds: float, outputs: Sequence[Array]
    ) -> None:
        """See ``Observer``."""
        if self.on:
            self._observer(nodes, start, seconds, outputs)
