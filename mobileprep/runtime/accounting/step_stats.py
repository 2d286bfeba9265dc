"""Times and memory of nodes over several runs, as the original ``StatsCalculator`` keeps them."""

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
    """A sequence of integers, summed up as it goes by."""

    count: int = 0
    first: int = 0
    newest: int = 0
    least: int = 0
    most: int = 0
    total: int = 0
    _squares: int = 0

    def add(self, value: int) -> None:
        """Take note of one more."""
        if not self.count:
            self.first = self.least = self.most = value
        self.newest = value
        self.least, self.most = min(self.least, value), max(self.most, value)
        self.count += 1
        self.total += value
        self._squares += value * value

    @property
    def mean(self) -> float:
        """The mean, 0 of nothing."""
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation, of all that went by."""
        if self.least == self.most:
            return 0.0
        return math.sqrt(max(self._squares / self.count - self.mean**2, 0.0))

    def __str__(self) -> str:
        """In the words of the original."""
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
        """As JSON takes it."""
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
    """What is kept of one step.

    Args:
        name: of the node, the first where several are computed together.
        kind: its op, or those of all, joined by plus signs.
        order: the place of its first execution.
        start, elapsed: microseconds, from the begin of the run and for the step.
        memory: bytes of the outputs; none of those that are views.
        calls: how often it was executed.
        outputs: the shapes and types that it made last.
    """

    name: str
    kind: str
    order: int
    start: Stat = field(default_factory=Stat)
    elapsed: Stat = field(default_factory=Stat)
    memory: Stat = field(default_factory=Stat)
    calls: int = 0
    outputs: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(slots=True)
class StepStats:
    """An observer of the interpreter that keeps the times of every step over several runs.

    Args:
        nodes: by name.
        run_times: microseconds of all steps together, of each run.
        run_memory: bytes that all steps made, of each run.
    """

    nodes: dict[str, NodeStats] = field(default_factory=dict)
    run_times: Stat = field(default_factory=Stat)
    run_memory: Stat = field(default_factory=Stat)
    _began: float | None = None
    _elapsed: int = 0
    _memory: int = 0

    @property
    def runs(self) -> int:
        """How many runs have ended."""
        return self.run_times.count

    def __call__(
        self, nodes: Sequence[Node], start: float, seconds: float, outputs: Sequence[Array]
    ) -> None:
        """See ``Observer``."""
        if self._began is None:
            self._began = start
        kept = self._of(nodes)
        elapsed, memory = round(seconds * _MICRO), _memory_of(nodes, outputs)
        kept.start.add(round((start - self._began) * _MICRO))
        kept.elapsed.add(elapsed)
        kept.memory.add(memory)
        kept.calls += 1
        kept.outputs = tuple((_kind(x), x.shape) for x in outputs)
        self._elapsed += elapsed
        self._memory += memory

    def end_run(self) -> None:
        """A run has ended; the next begins with the next step."""
        self.run_times.add(self._elapsed)
        self.run_memory.add(self._memory)
        self._began, self._elapsed, self._memory = None, 0, 0

    def _of(self, nodes: Sequence[Node]) -> NodeStats:
        name = nodes[0].name
        kept = self.nodes.get(name)
        if kept is None:
            kept = NodeStats(name, "+".join(n.op for n in nodes), len(self.nodes) + 1)
            self.nodes[name] = kept
        return kept


def _memory_of(nodes: Sequence[Node], outputs: Sequence[Array]) -> int:
    if all(n.op in VIEWS for n in nodes):
        return 0
    return sum(TensorLayout.of(x).nbytes for x in outputs)


def _kind(array: Array) -> str:
    return "string" if array.dtype == object else array.dtype.name


class KindStats(Struct, frozen=True):
    """All nodes of one kind together, in one run on average.

    Args:
        kind: the op.
        count: of nodes.
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
    """The kinds of nodes, the one that took longest first."""
    groups: dict[str, list[NodeStats]] = {}
    for node in stats.nodes.values():
        groups.setdefault(node.kind, []).append(node)
    runs = max(stats.runs, 1)
    found = [
        KindStats(
            kind,
            len(nodes),
            sum(n.elapsed.total // runs for n in nodes),
            sum(n.memory.newest for n in nodes),
            sum(n.calls // runs for n in nodes),
        )
        for kind, nodes in groups.items()
    ]
    return sorted(sorted(found, key=lambda k: k.kind, reverse=True), key=lambda k: -k.micros)
