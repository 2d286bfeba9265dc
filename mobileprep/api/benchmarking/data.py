"""What ``benchmark`` measured, as JSON takes it."""

from __future__ import annotations

from typing import Any

from mobileprep.api.benchmarking.runs import Timings
from mobileprep.options.devices import Device
from mobileprep.runtime.accounting.costs import GraphCosts
from mobileprep.runtime.accounting.step_stats import NodeStats, Stat, StepStats, by_kind


def timings_as_data(timings: Timings) -> dict[str, Any]:
    """Engine, times of runs in microseconds, and times of nodes where there are any."""
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
    """Operations, parameters, memory and bytes moved, in all and of each node."""
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
    """A device, and the least time that an inference can take on it."""
    return {
        "name": device.name,
        "title": device.title,
        "gflops": device.gflops,
        "basis": device.basis,
        "source": device.source,
        "url": device.url,
        "best_seconds": device.seconds(costs.flops),
    }
