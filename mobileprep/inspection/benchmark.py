"""Benchmark a graph on this machine, and count the cost of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins
from numpy.typing import ArrayLike

from mobileprep.core.arguments import FilePath, Warn, as_warning, names_of
from mobileprep.errors import InvalidGraphError, UsageError
from mobileprep.freezing.loading import Model, ModelOptions, load_model
from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import ends
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.inspection.benchmark_runs import (
    Pace,
    TimedGraph,
    TimeShare,
    Timings,
    measured_costs,
    output_layers,
    time_graph,
    time_shares,
    zero_feeds,
)
from mobileprep.inspection.costs import CountedRun, scope_of
from mobileprep.inspection.diagnosis import Diagnosis, diagnose
from mobileprep.litert.in_memory import tflite_in_memory
from mobileprep.runtime.accounting.costs import GraphCosts
from mobileprep.runtime.accounting.step_stats import NodeStats, Stat, StepStats, by_kind
from mobileprep.runtime.engines.agreement import Engine
from mobileprep.runtime.engines.choose import open_engine
from mobileprep.runtime.feeding.feeds import check_fed, with_fed_shapes
from mobileprep.runtime.feeding.files import tensor_info
from mobileprep.runtime.interpreter import converted, in_line
from mobileprep.targets.op_classes import class_costs
from mobileprep.targets.targets import Device


class Benchmark(Struct, frozen=True):
    """Result of a benchmark.

    Args:
        timings: times of runs in microseconds, ``timings.plain.mean``, and of nodes.
        costs: operations, parameters, memory, and bytes moved, ``costs.flops``; None if they were
            not counted.
        device: device for comparison, or None.
        diagnosis: where the run wastes time, or operations if nodes were not timed; None without
            costs.
    """

    timings: Timings
    costs: GraphCosts | None = None
    device: Device | None = None
    diagnosis: Diagnosis | None = None

    def times(self, depth: int = 1) -> tuple[list[TimeShare], list[TimeShare]]:
        """Return the time and the operations of each op, and of each name scope.

        Args:
            depth: number of name components of a scope.
        """
        stats = self.timings.stats
        if stats is None or self.costs is None:
            return [], []
        by_op = time_shares(stats, self.costs, lambda node: node.kind)
        return by_op, time_shares(stats, self.costs, lambda node: scope_of(node.name, depth))

    def as_data(self) -> dict[str, Any]:
        """Return JSON-serializable data, as printed by ``mobileprep benchmark --json``."""
        data = timings_as_data(self.timings)
        if self.costs is not None:
            data |= costs_as_data(self.costs, self.timings.plain)
            if self.device is not None:
                data["device"] = device_as_data(self.device, self.costs)
        by_op, by_scope = self.times()
        data |= {"time_by_op": to_builtins(by_op), "time_by_scope": to_builtins(by_scope)}
        data["diagnosis"] = to_builtins(self.diagnosis)
        return data


def benchmark(
    model: Graph | FilePath,
    feeds: Mapping[str, ArrayLike] | None = None,
    fetches: Sequence[str] = (),
    *,
    runs: int = 50,
    seconds: float = 10.0,
    warmup: int = 1,
    engine: str = "numpy",
    threads: int = 0,
    tell: Warn | None = None,
) -> Benchmark:
    """Time a graph, and count the cost of one run.

    Args:
        model: a graph, or the path of any model that ``freeze`` accepts, which is frozen first.
        feeds: values by tensor name, see ``run``; by default zeros for each placeholder, with size
            1 for unknown dimensions.
        fetches: tensors to compute; by default a signature's outputs, or the graph's final nodes.
        runs: maximum number of runs; 0 for no limit except the time.
        seconds: maximum running time; 0 for no limit except the number of runs.
        warmup: number of runs that do not count.
        engine: see ``run``; node times are only available with ``numpy``.
        threads: number of threads; 0 for all processors.
        tell: callback for progress messages; by default none are reported.

    Raises:
        UsageError: see ``run``; also if a placeholder without a feed has an unknown shape.
        InvalidGraphError: see ``run``.
        UnsupportedError: see ``run``.
        CorruptFileError: see ``run``.
    """
    tell = tell or _ignore
    requested = names_of(fetches)
    loaded = opened(model, requested, tell)
    arrays = zero_feeds(loaded.graph) if feeds is None else fed_arrays(loaded, feeds)
    names = requested or loaded.outputs or output_layers(loaded.graph)
    subject = TimedGraph(loaded.graph, loaded.path, arrays, tuple(map(loaded.tensor, names)))
    timings = time_graph(
        subject,
        Pace(runs, seconds),
        engine=engine,
        warmup=warmup,
        pause=-1.0,
        combine=True,
        threads=threads,
        tell=tell,
    )
    return benchmarked(subject, timings)


def benchmarked(subject: TimedGraph, timings: Timings, device: Device | None = None) -> Benchmark:
    """Count the cost of one run, and find where it wastes time."""
    graph, costs, stats = subject.graph, measured_costs(subject), timings.stats
    if any(cost.name not in graph for cost in costs.nodes):
        # The costs are those of the graph with inlined functions.
        fetches, feeds = map(parse_ref, subject.fetches), map(parse_ref, subject.feeds)
        graph = in_line(graph, list(fetches), list(feeds), str(subject.path))
    seconds = None
    if stats is not None:
        seconds = {n.name: n.elapsed.total / 1e6 for n in stats.nodes.values()}
    run = CountedRun(graph, costs)
    diagnosis = diagnose(run, tuple(subject.feeds), subject.fetches, seconds=seconds)
    return Benchmark(timings, costs, device, diagnosis)


def _ignore(_: str) -> None:
    """Ignore a message."""


def timings_as_data(timings: Timings) -> dict[str, Any]:
    """Return the engine, the times of runs in microseconds, and the times of nodes, if any."""
    times = {"warmup": timings.warmup.as_data(), "no_stats": timings.plain.as_data()}
    if timings.detailed is not None:
        times["with_stats"] = timings.detailed.as_data()
    data: dict[str, Any] = {"engine": timings.engine, "microseconds": times}
    stats = timings.stats
    if stats is not None:
        data["memory_bytes"] = stats.run_memory.as_data()
        data["nodes"] = [_node(n, stats) for n in stats.nodes.values()]
        data["types"] = [
            {
                "type": k.kind,
                "count": k.count,
                "avg_ms": k.micros / 1000,
                "memory_bytes": k.memory,
                "times_called": k.calls,
            }
            for k in by_kind(stats)
        ]
    return data


def _node(node: NodeStats, stats: StepStats) -> dict[str, Any]:
    return {
        "name": node.name,
        "type": node.kind,
        "start_ms": node.start.mean / 1000,
        "first_ms": node.elapsed.first / 1000,
        "avg_ms": node.elapsed.mean / 1000,
        "memory_bytes": node.memory.newest,
        "times_called": node.calls // max(stats.runs, 1),
    }


def costs_as_data(costs: GraphCosts, plain: Stat) -> dict[str, Any]:
    """Return operations, parameters, memory, and bytes moved, in total and for each node."""
    return {
        "flops": costs.flops,
        "flops_per_second": costs.flops / max(plain.mean / 1e6, 1e-9),
        "flops_by_type": costs.flops_by_op,
        "not_counted": list(costs.uncounted),
        "parameters": costs.parameters,
        "parameter_bytes": costs.parameter_bytes,
        "peak_activation_bytes": costs.peak_bytes,
        "moved_bytes": costs.moved,
        "costs": [
            {
                "name": n.name,
                "type": n.op,
                "flops": n.flops,
                "read_bytes": n.read,
                "written_bytes": n.written,
                "times_called": n.calls,
            }
            for n in costs.nodes
        ],
    }


def device_as_data(device: Device, costs: GraphCosts) -> dict[str, Any]:
    """Return a device, and the minimum time of an inference on it."""
    return {
        "name": device.name,
        "title": device.title,
        "gflops": device.gflops,
        "basis": device.basis,
        "source": device.source,
        "url": device.url,
        "best_seconds": device.seconds(class_costs(costs.nodes)),
    }


def run(
    model: Graph | FilePath,
    feeds: Mapping[str, ArrayLike] | None = None,
    fetches: Sequence[str] = (),
    *,
    engine: str = "numpy",
    seed: int | None = None,
    threads: int = 0,
    warn: Warn | None = None,
) -> dict[str, Array]:
    """Run a graph once.

    Args:
        model: a graph, or the path of any model that ``freeze`` accepts, which is frozen first.
        feeds: values by tensor name, or by a signature's input name. Numbers are converted to the
            tensor's dtype if only the width differs; strings may be ``str`` or ``bytes``. Shapes
            are those of the placeholders: a batch axis is not added.
        fetches: tensors to compute; by default a signature's outputs, or the graph's final nodes.
        engine: ``numpy``, ``openvino``, ``litert``, ``tensorflow``, or ``auto`` for the fastest
            installed one that can run the graph.
        seed: seed for random ops; only supported by numpy.
        threads: number of threads; 0 for the engine's default.
        warn: called with each warning; by default it is a ``MobileprepWarning``.

    Returns:
        A read-only array of the tensor's shape for each fetch, by the requested name. Strings are
        object arrays of bytes.

    Raises:
        UsageError: a name is not in the graph, a required placeholder has no feed, a feed does not
            fit its placeholder, or the engine does not exist.
        InvalidGraphError: the graph is malformed, or a node's inputs do not fit its op.
        UnsupportedError: the engine is not installed, or cannot run the graph.
        CorruptFileError: a file is missing or damaged.
    """
    warn = warn or as_warning
    requested = names_of(fetches)
    loaded = opened(model, requested, warn)
    arrays = fed_arrays(loaded, feeds or {})
    names = requested or loaded.outputs or tuple(ends(loaded.graph))
    if not names:
        message = "no tensors are named that the graph is to compute"
        raise UsageError(message, "name some in fetches")
    running = open_engine(
        engine,
        loaded.graph,
        loaded.path,
        seed=seed,
        threads=threads,
        tell=warn,
        convert=tflite_in_memory,
    )
    tensors = [loaded.tensor(name) for name in names]
    return dict(zip(names, run_fed(running, loaded, arrays, tensors), strict=True))


def opened(model: Graph | FilePath, fetches: Sequence[str], warn: Warn) -> Model:
    """Load a model to run. Assets are searched near the model file or in the working directory."""
    if isinstance(model, Graph):
        return Model(model, Path("graph"))
    return load_model(Path(model), ModelOptions(tuple(fetches)), warn)


def fed_arrays(model: Model, feeds: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """Convert the feeds to arrays of the tensors' dtypes, by tensor name."""
    named = {model.tensor(name): _array(name, value) for name, value in feeds.items()}
    graph = model.graph
    return {name: converted(a, tensor_info(graph, name).dtype) for name, a in named.items()}


def _array(name: str, value: ArrayLike) -> Array:
    try:
        return np.asarray(value)
    except ValueError as error:
        message = f"the value for {name!r} is not an array: {error}"
        raise UsageError(message, "give each row as many values as the others") from error


def run_fed(
    engine: Engine, model: Model, feeds: Mapping[str, Array], fetches: Sequence[str]
) -> list[Array]:
    """Compute tensors, after checking that all required placeholders have feeds."""
    check_fed(model.graph, feeds, fetches, str(model.path))
    try:
        return engine.run(fetches, feeds)
    except InvalidGraphError as error:
        raise with_fed_shapes(error, model.graph, feeds) from error
