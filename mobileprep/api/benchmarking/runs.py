"""The runs of a benchmark: warming up, without the times of nodes, and with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from mobileprep.errors import UnsupportedError
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.tensor import Array
from mobileprep.ops.context import Observer
from mobileprep.runtime.accounting.costs import GraphCosts, inferred_costs, run_costs
from mobileprep.runtime.accounting.step_stats import Stat, StepStats
from mobileprep.runtime.engines.assets import folders_near, with_found_assets
from mobileprep.runtime.engines.choose import AUTO, open_engine
from mobileprep.runtime.engines.numpy_engine import NumpyEngine

_MICRO = 1_000_000
_DAY = 24 * 60 * 60


@dataclass(frozen=True)
class TimedGraph:
    """What is benchmarked.

    Args:
        graph: the graph.
        path: the file that it comes from.
        feeds: arrays by tensor name.
        fetches: the tensors to compute.
        seed: for random numbers that the graph draws.
    """

    graph: Graph
    path: Path
    feeds: dict[str, Array]
    fetches: tuple[str, ...]
    seed: int | None = None


@dataclass(frozen=True)
class Pace:
    """How long to go on.

    Args:
        runs: at most, 0 or less for no bound but the time.
        seconds: of running, at most; 0 or less for no bound but the number.
        delay: seconds to sleep after each run.
    """

    runs: int
    seconds: float
    delay: float = -1.0


@dataclass(frozen=True)
class Timings:
    """What was measured.

    Args:
        engine: what ran the graph.
        warmup, plain: microseconds of each run.
        detailed: the same with the times of nodes taken; None where the engine does not tell them.
        stats: the times of nodes; None as above.
    """

    engine: str
    warmup: Stat
    plain: Stat
    detailed: Stat | None
    stats: StepStats | None


def time_runs(once: Callable[[], object], pace: Pace) -> Stat:
    """The microseconds of each run, of which there is at least one."""
    stat = Stat()
    while True:
        began = time.perf_counter()
        once()
        stat.add(round((time.perf_counter() - began) * _MICRO))
        enough = 0 < pace.runs <= stat.count
        late = 0 < pace.seconds < stat.total / _MICRO
        if enough or late or (pace.runs <= 0 and pace.seconds <= 0):
            return stat
        _sleep(pace.delay)


def time_graph(
    subject: TimedGraph,
    pace: Pace,
    *,
    engine: str,
    warmup: int,
    pause: float,
    combine: bool,
    threads: int,
    tell: Callable[[str], None],
) -> Timings:
    """Warm up, time runs, and time them again with the times of nodes.

    Args:
        subject: what to run.
        pace: how long, for each of the two.
        engine: its name.
        warmup: how many runs do not count.
        pause: seconds to sleep after each of the three.
        combine: whether to compute nodes that depend only on constants once, before the runs.
        threads: how many to use; 0 or less for all processors.
        tell: told what is done.
    """
    runner = open_engine(
        engine, subject.graph, subject.path, seed=subject.seed, tell=tell, threads=threads
    )

    def once() -> object:
        return runner.run(subject.fetches, subject.feeds)

    warm = Stat()
    if warmup > 0:
        tell(f"warming up, {warmup} runs")
        warm = time_runs(once, Pace(warmup, -1.0, pace.delay))
        _sleep(pause)
    tell(f"running at most {_limits(pace)}")
    plain = time_runs(once, pace)
    if engine == AUTO:
        tell(f"the engine is {runner.name}")
    _sleep(pause)
    if runner.name != "numpy":
        tell(f"{runner.name} does not tell the times of nodes")
        return Timings(runner.name, warm, plain, None, None)
    tell("the same with the times of nodes")
    stats = StepStats()
    observed = _interpreter(subject, stats, combine=combine)

    def once_observed() -> None:
        observed.run(subject.fetches, subject.feeds)
        stats.end_run()

    return Timings(runner.name, warm, plain, time_runs(once_observed, pace), stats)


def measured_costs(subject: TimedGraph) -> GraphCosts:
    """The costs by the shapes that a run shows; by inferred ones where it cannot run here."""
    graph = with_found_assets(subject.graph, folders_near(subject.path))
    try:
        where = str(subject.path)
        return run_costs(graph, subject.feeds, subject.fetches, where, seed=subject.seed)
    except UnsupportedError:
        shapes = {name: array.shape for name, array in subject.feeds.items()}
        return inferred_costs(subject.graph, subject.fetches, shapes, str(subject.path))


def _interpreter(subject: TimedGraph, observer: Observer, *, combine: bool) -> NumpyEngine:
    graph = with_found_assets(subject.graph, folders_near(subject.path))
    where = str(subject.path)
    return NumpyEngine(graph, where, combine=combine, observer=observer, seed=subject.seed)


def _limits(pace: Pace) -> str:
    bounds = [f"{pace.runs} times"] * (pace.runs > 0)
    bounds += [f"{pace.seconds:g} seconds"] * (pace.seconds > 0)
    return " or ".join(bounds) or "1 times"


def _sleep(seconds: float) -> None:
    # A day at a time: how long a system may be asked to wait at once differs.
    while seconds > 0:
        time.sleep(min(seconds, _DAY))
        seconds -= _DAY
