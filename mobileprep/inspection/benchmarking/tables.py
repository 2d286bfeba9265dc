"""Tables of ``benchmark_model``, with the same columns, separated by tabs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mobileprep.runtime.accounting.costs import GraphCosts, NodeCost
from mobileprep.runtime.accounting.step_stats import NodeStats, StepStats, by_kind

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
