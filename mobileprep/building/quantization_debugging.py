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
from mobileprep.building.plan.spec import Files, Plan, StageSpec, TargetPlan
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.calibrate.spec import CalibrateStage
from mobileprep.building.stages.evaluate.spec import EvaluateStage
from mobileprep.building.stages.freeze.spec import Interface
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
from mobileprep.recipe.validation_settings import USUAL_LABELS
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
    alone = _one_target(recipe, target)
    state = plan_state([alone])
    bound = store_bound(os.environ)
    executor = Executor(state, warn=lambda task, text: warn(f"{task}: {text}"))
    try:
        with quantized_target(state.plan, executor) as subject:
            return _measured(alone, subject, samples, seed, warn, tell)
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


def _one_target(recipe: Recipe, name: str) -> Recipe:
    # Before filtering targets, because file names depend on all files that a recipe names.
    recipe = portable_recipe(recipe)
    candidates = [t for t in recipe.targets if any(s.name == QUANTIZER for s in t.transforms)]
    matches = [t for t in candidates if not name or name in (t.name, t.folder)]
    if len(matches) == 1:
        return replace(recipe, targets=(matches[0],))
    names = ", ".join(t.folder for t in candidates)
    if not candidates:
        message = f"no target of {recipe.name!r} has {QUANTIZER} in its chain"
        raise UsageError(message, "write 'quantize: {mode: nodes}' in a target")
    if name:
        message = f"{recipe.name!r} has no target {name!r} whose nodes are quantized"
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
    inputs = executor.attempt(lambda: {up: executor.obtain(up) for up in read})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        handover = Handover(Plan((), ()))
        exchange = StoreExchange(spec.task, executor.state.store, inputs, handover, folder)
        job = Job(spec.task, stage, exchange, folder)
        interface = job.record(Interface, stage.interface)
        with asset_folder(job.path(assets)) as lying:
            graph = with_found_assets(job.graph(stage.graph), (lying,))
            options = options_of(stage) if isinstance(stage, TransformStage) else {**stage.options}
            if stage.ranges is not None:
                options["range_file"] = str(job.path(stage.ranges))
            if isinstance(stage, ChoiceStage):
                options["rule"] = (*_chosen_rules(job, stage), *own_rules(stage))
            yield QuantizedTarget(graph, interface, options, source, files)


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


def _data(plan: Plan) -> tuple[EvaluateStage | CalibrateStage, Files]:
    """Return the stage whose data is used, and the data files."""
    kinds: tuple[type[EvaluateStage | CalibrateStage], ...]
    kinds = (EvaluateStage, CalibrateStage)
    for kind in kinds:
        for spec in plan.stages:
            if isinstance(spec.stage, kind) and spec.stage.data is not None:
                return spec.stage, spec.stage.data
    message = "the target has no data to run the model on"
    raise UsageError(message, "add a section 'validation' or 'calibration'")


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
