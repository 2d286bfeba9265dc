"""Benchmark runs, and tables of their times and costs."""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from mobileprep.core.files import write_bytes
from mobileprep.errors import ArtifactError, UnsupportedError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.wire import FIXED64, VARINT, delimited, encode_varint
from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import ends, placeholders
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.graph.tflite import is_tflite_graph
from mobileprep.inspection.lite_costs import lite_costs
from mobileprep.litert.in_memory import tflite_in_memory
from mobileprep.ops.kernel import Observer
from mobileprep.ops.numerics.allocation import MAX_AXES
from mobileprep.runtime.accounting.costs import GraphCosts, NodeCost, inferred_costs, run_costs
from mobileprep.runtime.accounting.step_stats import NodeStats, Stat, StepStats, by_kind
from mobileprep.runtime.engines.choose import AUTO, open_engine
from mobileprep.runtime.engines.graph_engines import NumpyEngine
from mobileprep.runtime.engines.subgraph import folders_near, with_found_assets
from mobileprep.runtime.feeding.files import TensorInfo, tensor_info

_MICRO = 1_000_000
_DAY = 24 * 60 * 60


class TimedGraph(Struct, frozen=True):
    """A graph to benchmark.

    Args:
        graph: the graph.
        path: path of its file.
        feeds: arrays by tensor name.
        fetches: tensors to compute.
        seed: seed for random ops.
    """

    graph: Graph
    path: Path
    feeds: dict[str, Array]
    fetches: tuple[str, ...]
    seed: int | None = None


class Pace(Struct, frozen=True):
    """Limits of a series of runs.

    Args:
        runs: maximum number of runs; 0 or less for no limit except the time.
        seconds: maximum running time; 0 or less for no limit except the number of runs.
        delay: seconds to sleep after each run.
    """

    runs: int
    seconds: float
    delay: float = -1.0


class Timings(Struct, frozen=True):
    """Measured times.

    Args:
        engine: engine that ran the graph.
        warmup, plain: microseconds of each run.
        detailed: microseconds of each run with node times; None if the engine does not support
            them.
        stats: times of nodes; None if the engine does not support them.
    """

    engine: str
    warmup: Stat
    plain: Stat
    detailed: Stat | None
    stats: StepStats | None


def time_runs(once: Callable[[], object], pace: Pace) -> Stat:
    """Time runs in microseconds, at least one."""
    stat = Stat()
    while True:
        began = time.perf_counter()
        once()
        stat.add(round((time.perf_counter() - began) * _MICRO))
        enough = 0 < pace.runs <= stat.count
        late = 0 < pace.seconds < stat.total / _MICRO
        if enough or late or (pace.runs <= 0 and pace.seconds <= 0):
            return stat
        pause_for(pace.delay)


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
    """Warm up, time runs, and time runs again with node times.

    Args:
        pause: seconds to sleep after each of the three series.
        combine: whether to fold constants before the runs.
        threads: number of threads; 0 or less for all processors.
        tell: callback for progress messages.
    """
    runner = open_engine(
        engine,
        subject.graph,
        subject.path,
        seed=subject.seed,
        tell=tell,
        threads=threads,
        convert=tflite_in_memory,
    )

    def once() -> object:
        return runner.run(subject.fetches, subject.feeds)

    warm = Stat()
    if warmup > 0:
        tell(f"warming up, {warmup} runs")
        warm = time_runs(once, Pace(warmup, -1.0, pace.delay))
        pause_for(pause)
    tell(f"running at most {_limits(pace)}")
    plain = time_runs(once, pace)
    if engine == AUTO:
        tell(f"the engine is {runner.name}")
    pause_for(pause)
    if runner.name != "numpy":
        tell(f"{runner.name} does not measure the times of nodes")
        return Timings(runner.name, warm, plain, None, None)
    tell("the same with the times of nodes")
    stats = StepStats()
    observed = _interpreter(subject, stats, combine=combine)

    def once_observed() -> None:
        observed.run(subject.fetches, subject.feeds)
        stats.end_run()

    return Timings(runner.name, warm, plain, time_runs(once_observed, pace), stats)


def measured_costs(subject: TimedGraph) -> GraphCosts:
    """Compute the costs from the shapes of a run, or from inferred shapes if it fails."""
    shapes = {name: array.shape for name, array in subject.feeds.items()}
    if is_tflite_graph(subject.graph):
        return lite_costs(subject.graph, subject.fetches, shapes, batch=1)
    graph = with_found_assets(subject.graph, folders_near(subject.path))
    try:
        where = str(subject.path)
        return run_costs(graph, subject.feeds, subject.fetches, where, seed=subject.seed)
    except UnsupportedError:
        return inferred_costs(subject.graph, subject.fetches, shapes, str(subject.path))


def _interpreter(subject: TimedGraph, observer: Observer, *, combine: bool) -> NumpyEngine:
    graph = with_found_assets(subject.graph, folders_near(subject.path))
    where = str(subject.path)
    return NumpyEngine(graph, where, combine=combine, observer=observer, seed=subject.seed)


def _limits(pace: Pace) -> str:
    bounds = [f"{pace.runs} times"] * (pace.runs > 0)
    bounds += [f"{pace.seconds:g} seconds"] * (pace.seconds > 0)
    return " or ".join(bounds) or "1 times"


def pause_for(seconds: float) -> None:
    # Sleep a day at a time, because systems limit the duration.
    while seconds > 0:
        time.sleep(min(seconds, _DAY))
        seconds -= _DAY


# Defaults of the original benchmark_model.
_LAYER, _SHAPE, _OUTPUT = "input:0", (1, 224, 224, 3), "output:0"
_MOST_BYTES = 1 << 32


def zero_feeds(graph: Graph) -> dict[str, Array]:
    """Return zeros for each placeholder. Unknown dimensions have size 1."""
    infos = [tensor_info(graph, name) for name in default_layers(graph)]
    return {t.name: filled(t.name, usual_shape(t), t.dtype or DType.FLOAT, ()) for t in infos}


def output_layers(graph: Graph) -> tuple[str, ...]:
    """Return the default layers to compute: the original's default, or the graph's final nodes."""
    layers = [_OUTPUT] if parse_ref(_OUTPUT).node in graph else ends(graph)
    if not layers:
        message = "no layers are named that the graph is to compute"
        raise UsageError(message, "give --output_layer=a,b")
    return tuple(layers)


def default_layers(graph: Graph) -> Sequence[str]:
    """Return the placeholders, or the original's default input layer."""
    layers = placeholders(graph)
    return layers or ([_LAYER] if parse_ref(_LAYER).node in graph else [])


def usual_shape(tensor: TensorInfo) -> tuple[int, ...]:
    """Return the shape of a tensor, with size 1 for unknown dimensions."""
    if tensor.shape is not None:
        return tuple(max(d, 1) for d in tensor.shape)
    if parse_ref(tensor.name) == parse_ref(_LAYER):
        return _SHAPE
    message = f"the shape of {tensor.name!r} is not known"
    hint = "feed it; --input_layer_shape takes shapes such as 1,224,224,3, colons between layers"
    raise UsageError(message, hint)


def filled(name: str, shape: tuple[int, ...], dtype: DType, values: Sequence[float]) -> Array:
    """Return an array of the given values, followed by zeros. String tensors are empty strings."""
    kind = dtype.numpy
    size = math.prod(shape)
    if len(shape) > MAX_AXES:
        message = f"{name!r} has {len(shape)} axes, and numpy's arrays have at most {MAX_AXES}"
        raise UsageError(message, "benchmark a graph whose inputs have fewer")
    if size * 8 > _MOST_BYTES or len(values) > size:
        message = f"{len(values)} values for {name!r} of shape {list(shape)}"
        raise UsageError(message, "give a shape that fits the values, and the machine")
    if kind is None:
        if values:
            message = f"{name!r} expects strings, for which values cannot be given"
            raise UsageError(message, "leave --input_layer_values empty for it")
        return np.full(shape, b"", dtype=object)
    flat = np.zeros(size, dtype=kind)
    flat[: len(values)] = np.array(values).astype(kind)
    return flat.reshape(shape)


def write_entry(
    prefix: str, name: str, runs: int, seconds: float, throughput: float = -1.0
) -> None:
    """Write a ``BenchmarkEntries`` message with one entry to a new file.

    Args:
        throughput: megabytes per second, or -1.

    Raises:
        ArtifactError: the file already exists.
    """
    path = Path(prefix + name.replace("/", "__"))
    if os.path.lexists(path):
        message = "exists already"
        raise ArtifactError(message, "remove it, or choose another --output_prefix", str(path))
    count = max(runs, 1)
    entry = delimited(1, name.encode()) + _integer(2, runs)
    entry += _double(3, -1.0 / count) + _double(4, seconds / count) + _double(5, throughput)
    write_bytes(path, delimited(1, entry))


def _integer(number: int, value: int) -> bytes:
    return encode_varint(number << 3 | VARINT) + encode_varint(value)


def _double(number: int, value: float) -> bytes:
    return encode_varint(number << 3 | FIXED64) + struct.pack("<d", value)


_RULE = "=" * 30

Order = Callable[[NodeStats], float]


def by_run_order(node: NodeStats) -> float:
    """Sort by execution order."""
    return node.order


def by_time(node: NodeStats) -> float:
    """Sort by time, slowest first."""
    return -node.elapsed.mean


def by_memory(node: NodeStats) -> float:
    """Sort by output memory, largest first."""
    return -node.memory.mean


def node_table(title: str, stats: StepStats, order: Order, limit: int) -> Iterator[str]:
    """Yield a line for each node: type, start, first time, mean time, shares, memory, calls, name.

    Args:
        limit: maximum number of lines, or 0 for all.
    """
    yield f"{_RULE} {title} {_RULE}"
    heads = ("node type", "start", "first", "avg ms", "%", "cdf%", "mem KB", "times called")
    widths = (24, 17, 9, 9, 8, 8, 10, 9)
    yield _line([f"[{head}]" for head in heads], widths) + "\t[Name]"
    whole = stats.run_times.total or 1
    nodes = sorted(stats.nodes.values(), key=lambda n: (order(n), n.order))
    so_far = 0
    for node in nodes[: limit if limit > 0 else None]:
        so_far += node.elapsed.total
        cells = [
            node.kind,
            f"{node.start.mean / 1000:.3f}",
            f"{node.elapsed.first / 1000:.3f}",
            f"{node.elapsed.mean / 1000:.3f}",
            f"{node.elapsed.total * 100 / whole:>7.3f}%",
            f"{so_far * 100 / whole:>7.3f}%",
            f"{node.memory.newest / 1000:.3f}",
            str(node.calls // stats.runs),
        ]
        yield f"{_line(cells, widths)}\t{node.name}"
    yield ""


def kind_table(stats: StepStats) -> Iterator[str]:
    """Yield a line for each type of node: count, mean time, shares, memory, calls."""
    yield f"Number of nodes executed: {len(stats.nodes)}"
    yield f"{_RULE} Summary by node type {_RULE}"
    heads = ("Node type", "count", "avg ms", "avg %", "cdf %", "mem KB", "times called")
    widths = (24, 9, 10, 11, 11, 10, 10)
    yield _line([f"[{head}]" for head in heads], widths)
    kinds = by_kind(stats)
    whole = sum(k.micros for k in kinds) or 1
    so_far = 0.0
    for kind in kinds:
        share = kind.micros * 100 / whole
        so_far += share
        cells = [
            kind.kind,
            str(kind.count),
            f"{kind.micros / 1000:.3f}",
            f"{share:>10.3f}%",
            f"{so_far:>10.3f}%",
            f"{kind.memory / 1000:.3f}",
            str(kind.calls),
        ]
        yield _line(cells, (*widths[:-1], 9))
    yield ""


def short_summary(stats: StepStats) -> Iterator[str]:
    """Yield times and memory of the runs, and the number of nodes."""
    yield f"Timings (microseconds): {stats.run_times}"
    yield f"Memory (bytes): {stats.run_memory}"
    yield f"{len(stats.nodes)} nodes observed"
    yield ""


def cost_table(costs: GraphCosts) -> Iterator[str]:
    """Yield a line for each type of node that computes or moves data: operations and bytes."""
    yield f"{_RULE} Cost by node type {_RULE}"
    widths = (24, 9, 16, 11, 12, 12)
    heads = ("Node type", "count", "FLOPs", "%", "read KB", "written KB")
    yield _line([f"[{head}]" for head in heads], widths)
    groups: dict[str, list[NodeCost]] = {}
    for node in costs.nodes:
        groups.setdefault(node.op, []).append(node)
    whole = costs.flops or 1
    rows = [(op, sum(n.flops or 0 for n in nodes), nodes) for op, nodes in groups.items()]
    for op, flops, nodes in sorted(rows, key=lambda row: (-row[1], row[0])):
        if not flops and not any(n.moved for n in nodes):
            continue
        cells = [
            op,
            str(len(nodes)),
            str(flops) if op not in costs.uncounted else "?",
            f"{flops * 100 / whole:>10.3f}%",
            f"{sum(n.read for n in nodes) / 1000:.3f}",
            f"{sum(n.written for n in nodes) / 1000:.3f}",
        ]
        yield _line(cells, widths)
    yield ""


class TimeShare(Struct, frozen=True):
    """Measured time and operations of some nodes.

    Args:
        name: op, several ops that are computed together, or name scope; empty outside all scopes.
        nodes: number of steps.
        microseconds: mean time in one run.
        share: fraction of the time, from 0 to 1.
        flops: operations of one run, as far as known.
        gflops: billions of operations a second.
    """

    name: str
    nodes: int
    microseconds: float
    share: float
    flops: int
    gflops: float


def time_shares(
    stats: StepStats, costs: GraphCosts, group: Callable[[NodeStats], str]
) -> list[TimeShare]:
    """Return the time and the operations of groups of steps, slowest first.

    Args:
        group: returns the name of a step's group.
    """
    flops = {cost.name: cost.flops or 0 for cost in costs.nodes}
    groups: dict[str, list[NodeStats]] = {}
    for node in stats.nodes.values():
        groups.setdefault(group(node), []).append(node)
    runs = max(stats.runs, 1)
    total = sum(node.elapsed.total for node in stats.nodes.values()) / runs
    shares = []
    for name, nodes in groups.items():
        micros = sum(node.elapsed.total for node in nodes) / runs
        count = sum(flops.get(member, 0) for node in nodes for member in node.members)
        share, rate = (micros / total if total else 0.0), (count / micros / 1e3 if micros else 0.0)
        shares.append(TimeShare(name, len(nodes), micros, share, count, rate))
    return sorted(shares, key=lambda s: (-s.microseconds, s.name))


def time_table(title: str, shares: Sequence[TimeShare]) -> Iterator[str]:
    """Yield a line for each group: steps, mean time and operations, each with its share."""
    yield f"{_RULE} {title} {_RULE}"
    widths = (9, 10, 10, 16, 10, 10)
    heads = ("count", "avg ms", "time %", "FLOPs", "FLOPs %", "GFLOP/s")
    yield _line([f"[{head}]" for head in heads], widths) + "\t[Name]"
    whole = sum(share.flops for share in shares) or 1
    for share in shares:
        cells = [
            str(share.nodes),
            f"{share.microseconds / 1000:.3f}",
            f"{share.share:.2%}",
            str(share.flops),
            f"{share.flops / whole:.2%}",
            f"{share.gflops:.3f}",
        ]
        yield f"{_line(cells, widths)}\t{share.name or '(none)'}"
    yield ""


def output_sizes(stats: StepStats) -> Iterator[str]:
    """Yield a line for each node: name, number of outputs, and the dtype and shape of each."""
    yield "============ Node output tensor sizes in run order ========"
    for node in sorted(stats.nodes.values(), key=by_run_order):
        cells = [node.name, str(len(node.outputs))]
        for kind, shape in node.outputs:
            cells += [kind, str(len(shape)), *map(str, shape)]
        yield "\t".join(cells)


def readable(number: int) -> str:
    """Format a count like TensorFlow's ``HumanReadableNum``: 11.48B."""
    if number < 1000:
        return str(number)
    units, value = "kMBT", float(number)
    for unit in units:
        value /= 1000
        if value < 1000 or unit == units[-1]:
            return f"{value:.2f}{unit}"
    return str(number)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(f"\t{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
