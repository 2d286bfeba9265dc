"""Benchmark runs: warmup, timed runs, and runs with node times."""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Callable, Sequence
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
from mobileprep.runtime.accounting.costs import GraphCosts, inferred_costs, run_costs
from mobileprep.runtime.accounting.step_stats import Stat, StepStats
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
