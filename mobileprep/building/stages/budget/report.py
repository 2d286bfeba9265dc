"""Report the remaining budget of a target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mobileprep.building.report.layout import number_text
from mobileprep.building.stages.budget.spec import BudgetLine, MeasuredCost, OpCost
from mobileprep.targets.targets import DeviceCost

_SLOWEST: Final = 10


def budget_lines(lines: Sequence[BudgetLine]) -> Iterator[str]:
    """Yield a line for each limit, with its remaining budget."""
    for line in lines:
        basis = f" ({line.basis})" if line.basis else ""
        found, limit, left = map(number_text, (line.found, line.limit, line.left))
        yield f"budget   {line.name}: {found} of {limit}, {left} left{basis}"


def measured_text(measured: MeasuredCost) -> str:
    """Format a measurement.

    Example: ``12.1 ms on a Pixel 3 (std 0.4, 50 runs; 4 threads, ...), estimated 10.2 ms``.
    """
    spread = [] if measured.std_ms is None else [f"std {number_text(measured.std_ms)}"]
    spread += [] if measured.runs is None else [f"{measured.runs} runs"]
    basis = "; ".join(filter(None, (", ".join(spread), measured.basis)))
    text = f"{number_text(measured.latency_ms)} ms on {measured.device} ({basis})"
    if measured.estimated_ms is not None:
        text += f", estimated {number_text(measured.estimated_ms)} ms"
    return f"{text}; stale, of another model" if measured.is_stale else text


def slowest_ops(measured: MeasuredCost) -> list[OpCost]:
    """Return the ops that took most of the time, slowest first."""
    return sorted(measured.ops, key=lambda op: -op.measured_ms)[:_SLOWEST]


def measured_lines(measured: MeasuredCost) -> Iterator[str]:
    """Yield a line for a measurement, and one for each of the slowest ops."""
    yield f"measured {measured_text(measured)}"
    for op in slowest_ops(measured):
        estimate = "" if op.estimated_ms is None else f", estimated {number_text(op.estimated_ms)}"
        name = op.name or "all of them"
        yield f"  {op.op} {name}: {number_text(op.measured_ms)} ms{estimate}"


def cost_text(cost: DeviceCost) -> str:
    """Format the cost of a sample.

    Example: ``12,000 FLOPs a sample, at best 1.2 ms on a Raspberry Pi 3 (...)``.
    """
    latency = f"{cost.bound} {number_text(cost.latency_ms)} ms on {cost.device}"
    return f"{cost.flops:,} FLOPs a sample, {latency} ({cost.basis})"
