"""Report the remaining budget of a target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mobileprep.building.report.layout import number_text
from mobileprep.building.stages.budget.spec import BudgetLine
from mobileprep.targets.targets import DeviceCost


def budget_lines(lines: Sequence[BudgetLine]) -> Iterator[str]:
    """Yield a line for each limit, with its remaining budget."""
    for line in lines:
        basis = f" ({line.basis})" if line.basis else ""
        found, limit, left = map(number_text, (line.found, line.limit, line.left))
        yield f"budget   {line.name}: {found} of {limit}, {left} left{basis}"


def cost_text(cost: DeviceCost) -> str:
    """Format the cost of a sample.

    Example: ``12,000 FLOPs a sample, at best 1.2 ms on a Raspberry Pi 3 (...)``.
    """
    latency = f"at best {number_text(cost.latency_ms)} ms on {cost.device}"
    return f"{cost.flops:,} FLOPs a sample, {latency} ({cost.basis})"
