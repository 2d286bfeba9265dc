"""The stage `budget`: its parameters, inputs, outputs, and record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from msgspec import Struct

from mobileprep.building.plan.spec import Stage, StageSpec, Upstream, places
from mobileprep.building.report.layout import number_text
from mobileprep.building.stages.download.spec import DownloadStage
from mobileprep.building.stages.freeze.spec import Frozen
from mobileprep.building.stages.package.spec import CompressStage, PackageStage
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Artifact, Budget, InputSpec
from mobileprep.targets.measurements import Measurement
from mobileprep.targets.targets import Device, DeviceCost, Memory


class OpCost(Struct, frozen=True):
    """Time of an op of the model.

    Args:
        op: type of the op as the tool printed it.
        name: name of the op.
        measured_ms: measured milliseconds.
        estimated_ms: milliseconds by the target's device; None without one, or if no node of the
            model corresponds to the op.
    """

    op: str
    name: str
    measured_ms: float
    estimated_ms: float | None = None


class MeasuredCost(Struct, frozen=True):
    """A measurement of the model, next to the estimate.

    Args:
        device: name of the device.
        basis: build, threads, clock, tool, and date of the measurement.
        is_stale: whether another model was measured.
        latency_ms: mean milliseconds of a run.
        std_ms: standard deviation; None if unknown, as the number of runs.
        runs: number of runs.
        estimated_ms: milliseconds by the target's device, or None.
        ops: times of ops in the order of the run.
    """

    device: str
    basis: str
    is_stale: bool
    latency_ms: float
    std_ms: float | None
    runs: int | None
    estimated_ms: float | None
    ops: tuple[OpCost, ...]


class BudgetRecord(Struct, frozen=True):
    """Limits of a budget and the model's usage, ``budget.json``, in the order of the recipe's keys.

    Args:
        lines: one for each limit.
        cost: cost on the device, if the target names one and the cost is known.
        measured: measurement of the model, if the target names one.
        memory: memory while loading and running, if the budget limits it.
    """

    lines: tuple[BudgetLine, ...]
    cost: DeviceCost | None = None
    measured: MeasuredCost | None = None
    memory: Memory | None = None


class BudgetStage(Stage, frozen=True, kw_only=True):
    """Compare a model with the target's limits, and estimate its cost on the target's device.

    Args:
        budget: the limits.
        device: device for the latency and the cost.
        measurement: measurement of the model on a device.
        model: published model file, if there is a measurement of it.
        inputs: inputs, with the shapes that the recipe declares.
        package: record of the published model.
        compressed: record of its compressed size.
        download: record of the delta from the installed model, if the target has one.
        graph: graph of the published model.
        interface: inputs and outputs.
        assets: files that the graph reads.
        artifact: format of the model.
        lite: the .tflite file before it is encrypted, if its memory is limited.
    """

    stage_name: ClassVar[str] = "budget"
    stage_version: ClassVar[int] = 7
    RECORD: ClassVar[str] = "budget.json"
    reported: ClassVar[type[Struct] | None] = BudgetRecord

    budget: Budget
    device: Device | None = None
    measurement: Measurement | None = None
    model: Upstream | None = None
    inputs: tuple[InputSpec, ...] = ()
    package: Upstream
    compressed: Upstream
    download: Upstream | None = None
    graph: Upstream
    interface: Upstream
    assets: Upstream
    artifact: Artifact = "frozen"
    lite: Upstream | None = None


class BudgetLine(Struct, frozen=True):
    """A limit that the model does not exceed.

    Args:
        name: key of the recipe.
        found: the model's usage.
        limit: the permitted maximum.
        basis: source of the number if it is an estimate; else empty.
    """

    name: str
    found: int | float
    limit: int | float
    basis: str = ""

    @property
    def left(self) -> float:
        """Remaining budget."""
        return self.limit - self.found


def budget_spec(
    target: Target,
    frozen: Frozen,
    graph: Upstream,
    model: Upstream,
    package: str,
    compress: str,
    download: str | None = None,
    *,
    lite: Upstream,
) -> StageSpec | None:
    """Return the stage that checks a target against its limits; None without anything to check."""
    if target.budget == Budget() and target.device is None and target.measurement is None:
        return None
    needs_file = target.budget.ram is not None and target.artifact == "tflite"
    stage = BudgetStage(
        budget=target.budget,
        device=target.device,
        measurement=target.measurement,
        model=None if target.measurement is None else model,
        inputs=target.inputs,
        package=Upstream(package, PackageStage.RECORD),
        compressed=Upstream(compress, CompressStage.RECORD),
        download=None if download is None else Upstream(download, DownloadStage.RECORD),
        graph=graph,
        interface=frozen.interface,
        assets=frozen.assets,
        artifact=target.artifact,
        lite=lite if needs_file else None,
    )
    named = places(target, "budget", "inputs", "measurement")
    return StageSpec(f"{target.folder}/budget", stage, named)


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
