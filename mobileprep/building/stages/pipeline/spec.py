"""The stages `pipeline` and `pass_rate`: their parameters, inputs, outputs, and records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from msgspec import Struct

from mobileprep.building.plan.engines import RunningStage, engine_choice
from mobileprep.building.plan.sources import data_files
from mobileprep.building.plan.spec import Files, Stage, StageFile, StageSpec, Upstream, places
from mobileprep.building.stages.budget.spec import BudgetLine
from mobileprep.building.stages.freeze.spec import Frozen
from mobileprep.building.stages.package.spec import PackageStage
from mobileprep.recipe.model import Target
from mobileprep.recipe.pipeline_settings import PassRate, Pipeline, PipelineBudget, PipelineStep
from mobileprep.recipe.settings import Data, InputSpec
from mobileprep.targets.targets import Device


class Amounts(Struct, frozen=True):
    """Mean, 95th percentile, and maximum of a number for one input of the pipeline."""

    expected: float
    p95: float
    worst: float


class StepCost(Struct, frozen=True):
    """Cost of a step for one input of the pipeline.

    Args:
        model: name of the model.
        basis: source of the number of runs.
        runs: number of runs.
        flops: operations of all runs.
        latency_ms: minimum time of all runs at the rate of the device; None without a device.
        model_bytes: size of the model file.
        activation_bytes: peak memory of tensors in a run, without constants.
    """

    model: str
    basis: str
    runs: Amounts
    flops: Amounts
    latency_ms: Amounts | None
    model_bytes: int
    activation_bytes: int


class PipelineRecord(Struct, frozen=True):
    """Cost of a pipeline for one input, ``pipeline.json``.

    Args:
        steps: cost of each step.
        flops: operations of all steps. The 95th percentile is the sum of those of the steps.
        latency_ms: minimum time of all steps, in the same way; None without a device.
        ram_bytes: memory of model files and tensors.
        keep_loaded: whether all models are in memory at once.
        device: title and rate of the device; empty without one.
        basis: the ops that are not counted, and the counted graph; usually empty.
        budget: limits of the recipe, and the usage.
    """

    steps: tuple[StepCost, ...]
    flops: Amounts
    latency_ms: Amounts | None
    ram_bytes: int
    keep_loaded: bool
    device: str = ""
    basis: str = ""
    budget: tuple[BudgetLine, ...] = ()


class PassRateRecord(Struct, frozen=True):
    """Measured pass rate of a model's output, ``pass_rate.json``.

    Args:
        data: name of the data.
        samples: number of samples.
        values: number of values of the output.
        passed: number of values that reach the threshold.
        engine: engine that ran the model.
    """

    data: str
    samples: int
    values: int
    passed: int
    engine: str

    @property
    def rate(self) -> float:
        """Share of the values that reach the threshold."""
        return self.passed / self.values


class PassRateStage(RunningStage, frozen=True, kw_only=True):
    """Run a model on data and count the values of an output that reach a threshold.

    Args:
        data: the data.
        reading: how to read it.
        output: the output; None for the first.
        threshold: smallest value that passes.
        class_index: index in the last axis of the output; None for all values.
        samples: number of samples; None for all.
        inputs: inputs of the model, with the shapes that the recipe declares.
    """

    stage_name: ClassVar[str] = "pass_rate"
    stage_version: ClassVar[int] = 1
    RECORD: ClassVar[str] = "pass_rate.json"

    data: Files
    reading: Data
    output: str | None
    threshold: float
    class_index: int | None
    samples: int | None
    inputs: tuple[InputSpec, ...] = ()


class PipelineStage(Stage, frozen=True, kw_only=True):
    """Compute the cost of a pipeline for one input, and compare it with the limits.

    Args:
        steps: the steps. The following fields have an entry for each.
        inputs: inputs of the model, with the shapes that the recipe declares.
        graphs: graph of the published model.
        interfaces: inputs and outputs of the model.
        assets: files that the graph reads.
        packages: record of the published model.
        rates: measured pass rates, for the steps that measure one.
        keep_loaded: whether the app keeps all models in memory.
        budget: the limits, or None.
        device: device for the latency, or None.
    """

    stage_name: ClassVar[str] = "pipeline"
    stage_version: ClassVar[int] = 2
    RECORD: ClassVar[str] = "pipeline.json"
    reported: ClassVar[type[Struct] | None] = PipelineRecord

    steps: tuple[PipelineStep, ...]
    inputs: tuple[tuple[InputSpec, ...], ...]
    graphs: tuple[Upstream, ...]
    interfaces: tuple[Upstream, ...]
    assets: tuple[Upstream, ...]
    packages: tuple[Upstream, ...]
    rates: tuple[Upstream, ...] = ()
    keep_loaded: bool
    budget: PipelineBudget | None = None
    device: Device | None = None


class PlannedModel(Struct, frozen=True):
    """Outputs of a target's stages that a pipeline needs.

    Args:
        target: the target.
        frozen: the frozen source.
        graph: the graph after all transforms.
        package: task that packages it.
    """

    target: Target
    frozen: Frozen
    graph: Upstream
    package: str


def pass_rate_members(pipeline: Pipeline) -> Iterator[StageFile]:
    """Yield the files of data on which pass rates are measured."""
    for step in pipeline.steps:
        if isinstance(step.pass_rate, PassRate):
            yield from data_files(step.pass_rate.data).members


def pass_rate_specs(pipeline: Pipeline, models: Sequence[PlannedModel]) -> Iterator[StageSpec]:
    """Yield a stage for each pass rate to measure.

    Args:
        models: the model of each step.
    """
    for number, step in enumerate(pipeline.steps[1:], start=2):
        if isinstance(step.pass_rate, PassRate):
            yield _pass_rate_spec(step.pass_rate, number, models[number - 2])


def _pass_rate_spec(rate: PassRate, number: int, model: PlannedModel) -> StageSpec:
    target = model.target
    stage = PassRateStage(
        data=data_files(rate.data),
        reading=rate.data,
        output=rate.output,
        threshold=rate.threshold,
        class_index=rate.class_index,
        samples=rate.samples,
        inputs=target.inputs,
        engine=engine_choice(target),
        graph=model.graph,
        interface=model.frozen.interface,
        assets=model.frozen.assets,
    )
    where = {
        **places(target, "inputs", "engine"),
        "pipeline": target.place(("pipeline", "steps", number - 1, "pass_rate")),
    }
    return StageSpec(f"pipeline/{target.name}/{number:02d}-pass-rate", stage, where)


def pipeline_spec(
    pipeline: Pipeline, models: Sequence[PlannedModel], rates: Sequence[str]
) -> StageSpec:
    """Return the stage that computes the cost of a pipeline.

    Args:
        models: the model of each step.
        rates: tasks that measure pass rates.
    """
    target = models[-1].target
    stage = PipelineStage(
        steps=pipeline.steps,
        inputs=tuple(model.target.inputs for model in models),
        graphs=tuple(model.graph for model in models),
        interfaces=tuple(model.frozen.interface for model in models),
        assets=tuple(model.frozen.assets for model in models),
        packages=tuple(Upstream(model.package, PackageStage.RECORD) for model in models),
        rates=tuple(Upstream(task, PassRateStage.RECORD) for task in rates),
        keep_loaded=pipeline.keep_loaded,
        budget=pipeline.budget,
        device=target.device,
    )
    where = {
        **places(target, "pipeline"),
        "budget": target.place(("pipeline", "budget")),
    }
    return StageSpec(f"pipeline/{target.name}/costs", stage, where)
