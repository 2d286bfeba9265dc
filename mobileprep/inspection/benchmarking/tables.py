"""Tables of ``benchmark_model``, with the same columns, separated by tabs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

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
