"""The stages of ``check``: one that makes the samples, and one for each transform."""

from __future__ import annotations

from mobileprep.frozen import dataclass
from mobileprep.plan.engines import engine_choice
from mobileprep.plan.running_stages import CheckStage, SamplesStage
from mobileprep.plan.sources import data_files
from mobileprep.plan.spec import StageSpec, Upstream, places
from mobileprep.plan.stages import ASSETS, GRAPH, INTERFACE
from mobileprep.recipe.model import Step, Target
from mobileprep.recipe.settings import Check
from mobileprep.recipe.validation_settings import USUAL_LABELS


@dataclass(frozen=True)
class Frozen:
    """What a freeze stage leaves for the stages that run a graph."""

    graph: Upstream
    interface: Upstream
    assets: Upstream


def frozen_by(task: str) -> Frozen:
    """What the freeze stage of that task leaves."""
    return Frozen(Upstream(task, GRAPH), Upstream(task, INTERFACE), Upstream(task, ASSETS))


def samples_spec(target: Target, check: Check, frozen: Frozen) -> StageSpec:
    """The stage that finds or draws the samples, and runs the source on them.

    Args:
        target: the target.
        check: its check.
        frozen: the source.

    Raises:
        CorruptFileError: the data is not there.
    """
    data, section = check.data, "check"
    if data is None and target.validation is not None:
        data, section = target.validation.data, "validation"
    stage = SamplesStage(
        data=None if data is None else data_files(data),
        reading=data,
        section=section,
        labels=labels_of(target),
        count=check.samples,
        inputs=target.inputs,
        engine=engine_choice(target),
        graph=frozen.graph,
        interface=frozen.interface,
        assets=frozen.assets,
    )
    where = places(target, "check", "inputs", "outputs", "engine")
    return StageSpec("samples", stage, {**where, "data": target.place((section, "data"))})


def labels_of(target: Target) -> str:
    """The name of the labels, which are no input even where nobody asks for them."""
    metrics = () if target.validation is None else target.validation.metrics
    return next((m.labels for m in metrics if m.labels), USUAL_LABELS)


def check_spec(
    target: Target,
    check: Check,
    label: str,
    step: Step,
    graph: Upstream,
    frozen: Frozen,
    samples: str,
) -> StageSpec:
    """The stage that compares the graph after a step with the source.

    Args:
        target: the target.
        check: its check.
        label: the step's.
        step: the step.
        graph: the graph after it.
        frozen: the source.
        samples: the task that leaves the samples.
    """
    stage = CheckStage(
        step=step.name,
        max_difference=check.max_difference,
        engine=engine_choice(target),
        graph=graph,
        interface=frozen.interface,
        assets=frozen.assets,
        samples=Upstream(samples, SamplesStage.FED),
        expected=Upstream(samples, SamplesStage.EXPECTED),
    )
    return StageSpec(
        f"{label}-check",
        stage,
        {
            "engine": target.place(("engine",)),
            "max_difference": target.place(("check", "max_difference")),
            "transforms": step.place,
        },
    )
