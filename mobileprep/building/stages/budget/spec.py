"""The stage `budget`: its parameters, inputs, outputs, and record."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from mobileprep.building.plan.spec import Stage, StageSpec, Upstream, places
from mobileprep.building.stages.freeze.spec import Frozen
from mobileprep.building.stages.package.spec import CompressStage, PackageStage
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Budget, InputSpec
from mobileprep.targets.targets import Device, DeviceCost


class BudgetRecord(Struct, frozen=True):
    """What a budget allows and the model takes, ``budget.json``, in the order of the recipe's keys.

    Args:
        lines: one for each limit.
        cost: on the device, if the target names one and the cost is known.
    """

    lines: tuple[BudgetLine, ...]
    cost: DeviceCost | None = None


class BudgetStage(Stage, frozen=True, kw_only=True):
    """Compare a model with the target's limits, and estimate its cost on the target's device.

    Args:
        budget: the limits.
        device: the device of a latency and of the cost.
        inputs: what is fed, with the shapes that the recipe declares.
        package: the record of what ships.
        compressed: the record of its compressed size.
        graph: the graph that ships.
        interface: what is fed and fetched.
        assets: the files that it reads.
    """

    stage_name: ClassVar[str] = "budget"
    stage_version: ClassVar[int] = 5
    RECORD: ClassVar[str] = "budget.json"
    reported: ClassVar[type[Struct] | None] = BudgetRecord

    budget: Budget
    device: Device | None = None
    inputs: tuple[InputSpec, ...] = ()
    package: Upstream
    compressed: Upstream
    graph: Upstream
    interface: Upstream
    assets: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record alone."""
        return (self.RECORD,)


class BudgetLine(Struct, frozen=True):
    """A limit that is met.

    Args:
        name: the key of the recipe.
        found: what the model has or takes.
        limit: the most that is allowed.
        basis: what the number rests on, where it is an estimate; else empty.
    """

    name: str
    found: int | float
    limit: int | float
    basis: str = ""

    @property
    def left(self) -> float:
        """How much more the model might take."""
        return self.limit - self.found


def budget_spec(
    target: Target, frozen: Frozen, graph: Upstream, package: str, compress: str
) -> StageSpec:
    """The stage that holds a target to its limits."""
    stage = BudgetStage(
        budget=target.budget,
        device=target.device,
        inputs=target.inputs,
        package=Upstream(package, PackageStage.RECORD),
        compressed=Upstream(compress, CompressStage.RECORD),
        graph=graph,
        interface=frozen.interface,
        assets=frozen.assets,
    )
    return StageSpec(f"{target.folder}/budget", stage, places(target, "budget", "inputs"))
