"""What a target takes, and what it may take, in words."""

from __future__ import annotations

from mobileprep.plan.records import BudgetLine, DeviceCost, KernelsRecord


def budget_text(line: BudgetLine) -> str:
    """What the model takes, and what is left: ``48,000 of 50,000, 2,000 left``."""
    return f"{number_text(line.found)} of {number_text(line.limit)}, {number_text(line.left)} left"


def cost_text(cost: DeviceCost) -> str:
    """The cost of a sample: ``12,000 FLOPs a sample, at best 1.2 ms on a Raspberry Pi 3 (...)``."""
    latency = f"at best {number_text(cost.latency_ms)} ms on {cost.device}"
    return f"{cost.flops:,} FLOPs a sample, {latency} ({cost.basis})"


def kernels_text(found: KernelsRecord) -> str:
    """What a header registers: ``12 kernels of TensorFlow 1.15, about 534,120 bytes of code``."""
    plural = "s" * (found.kernels != 1)
    code = "" if found.bytes is None else f", about {found.bytes:,} bytes of code"
    return f"{found.kernels:,} kernel{plural} of TensorFlow {found.tensorflow} registered{code}"


def number_text(amount: float) -> str:
    """Whole numbers to the last digit, others to four."""
    return f"{amount:,}" if isinstance(amount, int) else f"{amount:,.4g}"
