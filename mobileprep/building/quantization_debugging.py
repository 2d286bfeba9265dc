"""Find the tensors and layers of a target that lose most accuracy by quantization."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.building.pipeline.eviction import store_bound
from mobileprep.building.pipeline.exchange import StoreExchange
from mobileprep.building.pipeline.execute import Executor, Handover
from mobileprep.building.plan.portable import portable_recipe
from mobileprep.building.plan.spec import Files, Plan, StageSpec, TargetPlan, Upstream
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.calibrate.spec import CalibrateStage
from mobileprep.building.stages.evaluate.spec import EvaluateStage
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.layers.report import ranked_layers
from mobileprep.building.stages.layers.run import measured_layers
from mobileprep.building.stages.layers.spec import LayersRecord, LayersStage, is_measured
from mobileprep.building.stages.running import asset_folder, data_files
from mobileprep.building.stages.search.run import level_rules, own_rules, ranked, recorded_tries
from mobileprep.building.stages.search.spec import ChoiceStage, RankStage
from mobileprep.building.stages.transform.run import options_of
from mobileprep.building.stages.transform.spec import TransformStage
from mobileprep.building.targets import plan_state
from mobileprep.data.calibration.damage import TensorDamage, tensor_damage
from mobileprep.data.calibration.layers import (
    LayerDamage,
    OutputComparison,
    OutputDamage,
    best_try,
    layer_damage,
    recipe_rule,
    rule_text,
    worst_alone,
)
from mobileprep.data.opening import open_dataset
from mobileprep.data.source import SampleChoice, data_inputs
from mobileprep.data.survey import runs
from mobileprep.errors import InternalError, UsageError
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.validation_settings import INTEGER_MODES, USUAL_LABELS
from mobileprep.runtime.engines.subgraph import with_found_assets
from mobileprep.transforms.base import Context, make_transform

_NAMED: Final = 3
_SAMPLES: Final = 16


class QuantizationDamage(Struct, frozen=True):
    """The effect of quantization on a target.

    Args:
        recipe: name of the recipe.
        target: directory of the target.
        data: data file, as named in the recipe.
        samples: number of samples.
        whole: difference of the outputs from float with all eligible layers quantized.
        layers: effect of each layer on the outputs, worst first.
        tensors: error of each tensor, worst first.
        rule: rule that keeps the worst layers in float, in the syntax of ``quantize.rules``; empty
            without layers.
    """

    recipe: str
    target: str
    data: str
    samples: int
    whole: OutputDamage
    layers: tuple[LayerDamage, ...]
    tensors: tuple[TensorDamage, ...]
    rule: str


def debug_quantization(
    recipe: Recipe,
    target: str = "",
    *,
    samples: int | None = None,
    seed: int = 0,
    warn: Callable[[str], None] = lambda _: None,
    tell: Callable[[int, int], None] = lambda done, count: None,
) -> QuantizationDamage:
    """Compare a target's float graph with the result of ``quantize_nodes``.

    Earlier stages are built if they are stale.

    Args:
        recipe: the recipe.
        target: name of the target; may be empty if only one target is quantized.
        samples: number of samples from the validation's data, or else from the calibration's. The
            default is 16, or fewer if there are not enough.
        seed: seed for choosing samples.
        warn: called with each warning.
        tell: called after each layer with the number of finished layers and the total.

    Raises:
        UsageError: the recipe has no such target, or the target has no data.
    """
    alone = one_target(recipe, target)
    with (
        _executor(alone, warn) as executor,
        quantized_target(executor.state.plan, executor) as subject,
    ):
        return _measured(alone, subject, samples, seed, warn, tell)


class FileDamage(Struct, frozen=True):
    """The effect of quantization on the layers of a .tflite file.

    Args:
        recipe: name of the recipe.
        target: directory of the target.
        errors: the errors of each layer and output, as in the report.
        rule: rule that keeps the worst layers in float, in the syntax of ``quantize.rules``; empty
            for modes without rules.
    """

    recipe: str
    target: str
    errors: LayersRecord
    rule: str


def debug_tflite(
    recipe: Recipe,
    target: str = "",
    *,
    samples: int | None = None,
    seed: int = 0,
    warn: Callable[[str], None] = lambda _: None,
    tell: Callable[[int, int], None] = lambda done, count: None,
) -> FileDamage:
    """Measure the layers of a LiteRT target's file before and after each repair.

    Earlier stages are built if they are stale.

    Args:
        recipe: the recipe.
        target: name of the target; may be empty if only one target is quantized.
        samples: number of samples from the validation's data, or else from the calibration's. The
            default is the number in the report, 4, or fewer if there are not enough.
        seed: seed for choosing samples; with 0, they are those of the report.
        warn: called with each warning.
        tell: called after each run of the network with the number of finished runs and the total.

    Raises:
        UsageError: the recipe has no such target, or the target has no data.
        UnsupportedError, InvalidGraphError: a graph cannot be converted or run.
    """
    alone = one_target(recipe, target)
    (only,) = alone.targets
    alone = replace(alone, targets=(replace(only, quantization_report=True),))
    with _executor(alone, warn) as executor:
        for spec in executor.state.plan.stages:
            if isinstance(spec.stage, LayersStage):
                stage = spec.stage
                break
        else:
            raise UsageError(*_NO_DATA)
        choice = SampleChoice(samples or stage.count, seed, exactly=samples is not None)
        with _running(spec, executor, list(stage.upstream.values())) as job:
            errors = measured_layers(replace(job, progress=tell), choice)
    names = [layer.layer for layer in ranked_layers(errors)[:_NAMED]]
    rule = _rule(names) if only.quantize.mode in INTEGER_MODES else ""
    return FileDamage(recipe.name, only.folder, errors, rule)


@contextmanager
def _executor(recipe: Recipe, warn: Callable[[str], None]) -> Iterator[Executor]:
    """Provide an executor of a recipe's plan, and save the state of the cache afterwards."""
    state = plan_state([recipe])
    bound = store_bound(os.environ)
    try:
        yield Executor(state, warn=lambda task, text: warn(f"{task}: {text}"))
    finally:
        state.store.files.save()
        state.store.finish(bound)


class WorstLayers(Struct, frozen=True):
    """The layers whose quantization changes a target's outputs most.

    Args:
        rule: rule that keeps the worst layers in float, in the syntax of ``quantize.rules``; empty
            if no layer is quantized.
        measured: number of layers that were measured, one at a time.
        layers: number of quantized layers.
        samples: number of samples.
    """

    rule: str
    measured: int
    layers: int
    samples: int


def worst_layers(
    target: TargetPlan, executor: Executor, *, samples: int, seconds: float
) -> WorstLayers:
    """Find the layers that a target should keep in float.

    All stages up to the quantizing one must have run. For ``quantize: auto``, layers that it
    already keeps in float are not considered.

    Args:
        target: plan of the target.
        executor: runs the plan's stages.
        samples: maximum number of samples.
        seconds: time limit.
    """
    stages = tuple(spec for spec in executor.state.plan.stages if spec.task in target.tasks)
    until = time.monotonic() + seconds
    with quantized_target(Plan(stages, ()), executor, chosen=True) as subject:
        choice = SampleChoice(samples, exactly=False)
        feeds, count = feeds_of(subject, choice, lambda _: None)
        comparison = OutputComparison(subject.graph, subject.interface.outputs, feeds)
        worst, layers = worst_alone(
            subject.graph, subject.quantized, comparison, lambda: time.monotonic() > until
        )
    return WorstLayers(_rule(worst[:_NAMED]), len(worst), layers, count)


def _measured(
    recipe: Recipe,
    subject: QuantizedTarget,
    samples: int | None,
    seed: int,
    warn: Callable[[str], None],
    report_progress: Callable[[int, int], None],
) -> QuantizationDamage:
    graph, interface = subject.graph, subject.interface
    choice = SampleChoice(samples or _SAMPLES, seed, exactly=samples is not None)
    feeds, count = feeds_of(subject, choice, warn)
    comparison = OutputComparison(graph, interface.outputs, feeds)
    quantized = subject.quantized(())
    layers = layer_damage(graph, subject.quantized, comparison, report_progress)
    worst = [layer.layer for layer in layers[:_NAMED]]
    return QuantizationDamage(
        recipe.name,
        recipe.targets[0].folder,
        subject.files.name,
        count,
        comparison.damage(quantized),
        layers,
        tensor_damage(graph, quantized, feeds),
        recipe_rule("float", worst) if worst else "",
    )


def one_target(recipe: Recipe, name: str) -> Recipe:
    """Return a recipe with only one of its quantized targets.

    Args:
        recipe: the recipe.
        name: name of the target; may be empty if only one target is quantized.

    Raises:
        UsageError: there is no such target, or there are several.
    """
    # Before filtering targets, because file names depend on all files that a recipe names.
    recipe = portable_recipe(recipe)
    candidates = [
        target
        for target in recipe.targets
        if is_measured(target) or any(step.name == QUANTIZER for step in target.transforms)
    ]
    matches = [t for t in candidates if not name or name in (t.name, t.folder)]
    if len(matches) == 1:
        return replace(recipe, targets=(matches[0],))
    names = ", ".join(t.folder for t in candidates)
    if not candidates:
        message = f"no target of {recipe.name!r} has {QUANTIZER} in its chain, or integers in a "
        message += ".tflite file"
        raise UsageError(message, "write 'quantize: {mode: nodes}' in a target")
    if name:
        message = f"{recipe.name!r} has no target {name!r} that is quantized"
        raise UsageError(message, f"there are {names}")
    message = f"{len(candidates)} targets of {recipe.name!r} are quantized"
    raise UsageError(message, f"name one of them with --target: {names}")


def _rule(layers: Sequence[str]) -> str:
    """Return the recipe's rule that keeps layers in float; empty without layers."""
    return recipe_rule("float", layers) if layers else ""


QUANTIZER: Final = "quantize_nodes"
# Small, because each run keeps all tensors of both graphs, see ``tensor_damage``.
_BATCH: Final = 4


class QuantizedTarget(Struct, frozen=True):
    """The float graph, the options of its quantization, and data to run it with.

    Args:
        graph: the float graph.
        interface: its inputs and outputs.
        options: options of ``quantize_nodes``.
        asked: stage whose data is used.
        files: data files.
    """

    graph: Graph
    interface: Interface
    options: Mapping[str, Any]
    asked: EvaluateStage | CalibrateStage
    files: Files

    def quantized(self, floats: Collection[str]) -> Graph:
        """Return the graph with its layers quantized, except those in ``floats``."""
        rules: tuple[str, ...] = tuple(self.options.get("rule", ()))
        if floats:
            rules = (*rules, rule_text("float", floats))
        step = make_transform(QUANTIZER, {**self.options, "rule": rules})
        context = Context(self.interface.inputs, self.interface.retained)
        return step.apply(self.graph, context).graph


@contextmanager
def quantized_target(
    plan: Plan, executor: Executor, *, chosen: bool = False
) -> Iterator[QuantizedTarget]:
    """Provide the graph, options, and data of a target's quantization.

    Args:
        plan: plan of one target.
        executor: runs the plan's stages.
        chosen: for ``quantize: auto``, use the chosen rules; otherwise quantize all eligible
            layers.
    """
    spec, stage = _quantizing(plan, chosen=chosen)
    source, files = _data(plan)
    assets = source.assets
    read = [stage.graph, stage.interface, *([stage.ranges] if stage.ranges else []), assets]
    if isinstance(stage, ChoiceStage):
        read += [stage.ranking, stage.tries]
    with _running(spec, executor, read) as job:
        interface = job.record(Interface, stage.interface)
        with asset_folder(job.path(assets)) as lying:
            graph = with_found_assets(job.graph(stage.graph), (lying,))
            options = options_of(stage) if isinstance(stage, TransformStage) else {**stage.options}
            if stage.ranges is not None:
                options["range_file"] = str(job.path(stage.ranges))
            if isinstance(stage, ChoiceStage):
                options["rule"] = (*_chosen_rules(job, stage), *own_rules(stage))
            yield QuantizedTarget(graph, interface, options, source, files)


@contextmanager
def _running(spec: StageSpec, executor: Executor, read: Sequence[Upstream]) -> Iterator[Job[Any]]:
    """Build the inputs of a stage, and provide a job that reads them."""
    inputs = executor.attempt(lambda: {up: executor.obtain(up) for up in read})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        handover = Handover(Plan((), ()))
        exchange = StoreExchange(spec.task, executor.state.store, inputs, handover, folder)
        yield Job(spec.task, spec.stage, exchange, folder)


def _chosen_rules(job: Job[Any], stage: ChoiceStage) -> tuple[str, ...]:
    best = best_try(recorded_tries(job, stage.tries))
    return () if best is None else level_rules(ranked(job, stage.ranking), best.levels)


def _quantizing(
    plan: Plan, *, chosen: bool
) -> tuple[StageSpec, TransformStage | RankStage | ChoiceStage]:
    """Return the stage that quantizes all layers of the float graph, or the chosen ones."""
    for spec in reversed(plan.stages):
        stage = spec.stage
        if isinstance(stage, ChoiceStage if chosen else RankStage):
            return spec, stage
        if isinstance(stage, TransformStage) and stage.transform == QUANTIZER:
            return spec, stage
    message = f"the plan has no stage of {QUANTIZER}"
    raise InternalError(message)


_NO_DATA: Final = (
    "the target has no data to run the model on",
    "add a section 'validation' or 'calibration'",
)


def _data(plan: Plan) -> tuple[EvaluateStage | CalibrateStage, Files]:
    """Return the stage whose data is used, and the data files."""
    kinds: tuple[type[EvaluateStage | CalibrateStage], ...]
    kinds = (EvaluateStage, CalibrateStage)
    for kind in kinds:
        for spec in plan.stages:
            if isinstance(spec.stage, kind) and spec.stage.data is not None:
                return spec.stage, spec.stage.data
    raise UsageError(*_NO_DATA)


def feeds_of(
    subject: QuantizedTarget, choice: SampleChoice, warn: Callable[[str], None]
) -> tuple[list[Mapping[str, Array]], int]:
    """Return the input arrays of each run, and the number of samples."""
    stage = subject.asked
    declared = {fed.name: fed.shape for fed in stage.inputs}
    inputs = data_inputs(subject.graph, subject.interface.inputs, declared)
    if isinstance(stage, CalibrateStage):
        reading, strict, labels = stage.calibration.data, stage.calibration.strict, stage.labels
    else:
        reading, strict = stage.reading, stage.strict
        labels = next((m.labels for m in stage.metrics if m.labels), USUAL_LABELS)
    data = open_dataset(
        data_files(subject.files, reading),
        inputs,
        replace(choice, strict=strict),
        labels=labels,
        warn=warn,
    )
    batches = list(runs(data, inputs, _BATCH))
    # A padded run counts some samples twice.
    whole = [run for run in batches if run.fed == run.count]
    usable = whole or batches
    return [run.feeds for run in usable], sum(run.count for run in usable)
