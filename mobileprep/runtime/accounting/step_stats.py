"""Times and memory of nodes over several runs, as in TensorFlow's ``StatsCalculator``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.runtime.accounting.costs import VIEWS, TensorLayout

_MICRO = 1_000_000


@dataclass(slots=True)
class Stat:
    """Running statistics of a sequence of integers."""

    count: int = 0
    first: int = 0
    newest: int = 0
    least: int = 0
    most: int = 0
    total: int = 0
    _squares: int = 0

    def add(self, value: int) -> None:
        """Add a value."""
        if not self.count:
            self.first = self.least = self.most = value
        self.newest = value
        self.least, self.most = min(self.least, value), max(self.most, value)
        self.count += 1
        self.total += value
        self._squares += value * value

    @property
    def mean(self) -> float:
        """The mean, 0 for an empty sequence."""
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation of all values."""
        if self.least == self.most:
            return 0.0
        return math.sqrt(max(self._squares / self.count - self.mean**2, 0.0))

    def __str__(self) -> str:
        """Format like TensorFlow."""
        if not self.count:
            return "count=0"
        if self.least == self.most:
            same = "(all same)" if self.count > 1 else ""
            return f"count={self.count} curr={self.newest}{same}"
        return (
            f"count={self.count} first={self.first} curr={self.newest} min={self.least} "
            f"max={self.most} avg={self.mean:g} std={self.deviation:g}"
        )

    def as_data(self) -> dict[str, Any]:
        """Return the statistics for JSON."""
        return {
            "count": self.count,
            "first": self.first,
            "min": self.least,
            "max": self.most,
            "avg": self.mean,
            "std": self.deviation,
        }


@dataclass(slots=True)
class NodeStats:
    """Statistics of one step.

    Args:
        name: of the node, the first one if several are computed together.
        kind: its op, or the ops of all, joined by plus signs.
        order: the position of its first execution.
        start, elapsed: microseconds, from the beginning of the run and for the step.
        memory: bytes of the outputs; 0 for views.
        calls: number of executions.
        outputs: the types and shapes of its last outputs.
        members: names of the nodes that are computed together.
    """

    name: str
    kind: str
    order: int
    start: Stat = field(default_factory=Stat)
    elapsed: Stat = field(default_factory=Stat)
    memory: Stat = field(default_factory=Stat)
    calls: int = 0
    outputs: tuple[tuple[str, tuple[int, ...]], ...] = ()
    members: tuple[str, ...] = ()


@dataclass(slots=True)
class StepStats:
    """An interpreter observer that records the times of every step over several runs.

    Args:
        nodes: by name.
        run_times: microseconds of all steps of each run.
        run_memory: bytes of the outputs of all steps of each run.
    """

    nodes: dict[str, NodeStats] = field(default_factory=dict)
    run_times: Stat = field(default_factory=Stat)
    run_memory: Stat = field(default_factory=Stat)
    _began: float | None = None
    _elapsed: int = 0
    _memory: int = 0

    @property
    def runs(self) -> int:
        """Number of finished runs."""
        return self.run_times.count

    def __call__(
        self, nodes: Sequence[Node], start: float, seconds: float, outputs: Sequence[Array]
    ) -> None:
        """See ``Observer``."""
        if self._began is None:
            self._began = start
        stats = self._of(nodes)
        elapsed, memory = round(seconds * _MICRO), _memory_of(nodes, outputs)
        stats.start.add(round((start - self._began) * _MICRO))
        stats.elapsed.add(elapsed)
        stats.memory.add(memory)
        stats.calls += 1
        stats.outputs = tuple((_kind(x), x.shape) for x in outputs)
        self._elapsed += elapsed
        self._memory += memory

    def end_run(self) -> None:
        """Finish a run; the next one starts with the next step."""
        self.run_times.add(self._elapsed)
        self.run_memory.add(self._memory)
        self._began, self._elapsed, self._memory = None, 0, 0

    def _of(self, nodes: Sequence[Node]) -> NodeStats:
        name = nodes[0].name
        stats = self.nodes.get(name)
        if stats is None:
            members = tuple(n.name for n in nodes)
            kind = "+".join(n.op for n in nodes)
            stats = NodeStats(name, kind, len(self.nodes) + 1, members=members)
            self.nodes[name] = stats
        return stats


def _memory_of(nodes: Sequence[Node], outputs: Sequence[Array]) -> int:
    if all(n.op in VIEWS for n in nodes):
        return 0
    return sum(TensorLayout.of(x).nbytes for x in outputs)


def _kind(array: Array) -> str:
    return "string" if array.dtype == object else array.dtype.name


class KindStats(Struct, frozen=True):
    """Totals of all nodes of one kind, averaged over runs.

    Args:
        kind: the op.
        count: number of nodes.
        micros: microseconds, rounded down for each node.
        memory: bytes.
        calls: executions.
    """

    kind: str
    count: int
    micros: int
    memory: int
    calls: int


def by_kind(stats: StepStats) -> list[KindStats]:
    """Return the kinds of nodes, slowest first."""
    groups: dict[str, list[NodeStats]] = {}
    for node in stats.nodes.values():
        groups.setdefault(node.kind, []).append(node)
    runs = max(stats.runs, 1)
    kinds = [
        KindStats(
            kind,
            len(nodes),
            sum(n.elapsed.total // runs for n in nodes),
            sum(n.memory.newest for n in nodes),
            sum(n.calls // runs for n in nodes),
        )
        for kind, nodes in groups.items()
    ]
    return sorted(sorted(kinds, key=lambda k: k.kind, reverse=True), key=lambda k: -k.micros)
