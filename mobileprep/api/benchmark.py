"""What a graph costs, and how long it takes on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from mobileprep.api.benchmarking.data import costs_as_data, device_as_data, timings_as_data
from mobileprep.api.benchmarking.inputs import output_layers, zero_feeds
from mobileprep.api.benchmarking.runs import Pace, TimedGraph, Timings, measured_costs, time_graph
from mobileprep.api.paths import FilePath, Warn, names_of
from mobileprep.api.running import fed_arrays, opened
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.options.devices import Device
from mobileprep.runtime.accounting.costs import GraphCosts


@dataclass(frozen=True)
class Benchmark:
    """What was measured and counted.

    Args:
        timings: of runs in microseconds: ``timings.plain.mean``, and of nodes.
        costs: operations, parameters, memory and bytes moved: ``costs.flops``; None where they were
            not counted.
        device: what the costs are compared with; None for nothing.
    """

    timings: Timings
    costs: GraphCosts | None = None
    device: Device | None = None

    def as_data(self) -> dict[str, Any]:
        """All of it as JSON takes it, as ``mobileprep benchmark --json`` prints it."""
        data = timings_as_data(self.timings)
        if self.costs is not None:
            data |= costs_as_data(self.costs, self.timings.plain)
            if self.device is not None:
                data["device"] = device_as_data(self.device, self.costs)
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
    """Time a graph, and count what one run of it costs.

    Args:
        model: a graph, or the path of a model as ``freeze`` takes it, which is frozen first.
        feeds: values by tensor name, see ``run``; by default zeros for each placeholder, of its
            shape with 1 for unknown sizes.
        fetches: the tensors to compute; by default a signature's outputs, or the graph's ends.
        runs: how many at most; 0 for no bound but the time.
        seconds: of running at most; 0 for no bound but the number.
        warmup: how many runs do not count.
        engine: see ``run``; the times of nodes are known with ``numpy`` alone.
        threads: how many to use; 0 for all processors.
        tell: told what is being done; by default nobody is.

    Raises:
        UsageError, InvalidGraphError, UnsupportedError, CorruptFileError: see ``run``; and
            UsageError where the shape of a placeholder that is not fed is not known.
    """
    tell = tell or _nobody
    wanted = names_of(fetches)
    loaded = opened(model, wanted, tell)
    given = zero_feeds(loaded.graph) if feeds is None else fed_arrays(loaded, feeds)
    names = wanted or loaded.outputs or output_layers(loaded.graph)
    subject = TimedGraph(loaded.graph, loaded.path, given, tuple(map(loaded.tensor, names)))
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
    return Benchmark(timings, measured_costs(subject))


def _nobody(_: str) -> None:
    """Tells nothing."""
