"""Graphs handed from stage to stage in memory, for as long as a stage of the run may read them."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from mobileprep.plan.spec import Plan, StageSpec, Upstream

if TYPE_CHECKING:
    from mobileprep.ir.graph import Graph


class Handover:
    """The graphs that stages of one run have left, until every stage that reads them is done.

    Args:
        plan: the plan, which tells who reads what.
    """

    def __init__(self, plan: Plan) -> None:
        self._readers = Counter(
            up for spec in plan.stages for up in {*spec.stage.upstream.values()}
        )
        self._graphs: dict[Upstream, Graph] = {}
        self._done: set[str] = set()
        self._lock = threading.Lock()

    def leave(self, upstream: Upstream, graph: Graph) -> None:
        """Keep a graph for those that will read it; nothing where nobody will."""
        with self._lock:
            if self._readers[upstream] > 0:
                self._graphs[upstream] = graph

    def find(self, upstream: Upstream) -> Graph | None:
        """The graph, where a stage of this run has left it."""
        with self._lock:
            return self._graphs.get(upstream)

    def done(self, spec: StageSpec) -> None:
        """A stage has read what it reads, or need not run."""
        with self._lock:
            if spec.task in self._done:
                return
            self._done.add(spec.task)
            for upstream in {*spec.stage.upstream.values()}:
                self._readers[upstream] -= 1
                if self._readers[upstream] <= 0:
                    self._graphs.pop(upstream, None)
