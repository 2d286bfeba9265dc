"""What one target quantizes: its float graph, the options, and samples to run both graphs on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mobileprep.calibration.layers import best_try, rule_text
from mobileprep.datasets.opening import open_dataset
from mobileprep.datasets.source import SampleChoice, data_inputs
from mobileprep.datasets.survey import runs
from mobileprep.errors import InternalError, UsageError
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.tensor import Array
from mobileprep.pipeline.exchange import StoreExchange
from mobileprep.pipeline.execute import Executor
from mobileprep.pipeline.handover import Handover
from mobileprep.plan.records import Interface
from mobileprep.plan.running_stages import CalibrateStage, EvaluateStage
from mobileprep.plan.search_stages import ChoiceStage, RankStage
from mobileprep.plan.spec import Files, Plan, StageSpec
from mobileprep.plan.stages import TransformStage
from mobileprep.recipe.validation_settings import USUAL_LABELS
from mobileprep.runtime.engines.assets import with_found_assets
from mobileprep.stages.assets import asset_folder
from mobileprep.stages.base import Job
from mobileprep.stages.data import data_files
from mobileprep.stages.searching import level_rules, own_rules, ranked, recorded_tries
from mobileprep.stages.transform import options_of
from mobileprep.transforms.base import Context, make_transform

QUANTIZER: Final = "quantize_nodes"
# All tensors of both graphs are kept for one run, see ``tensor_damage``.
_BATCH: Final = 4


@dataclass(frozen=True)
class QuantizedTarget:
    """What is quantized: the float graph, the step's options, and data to run it on.

    Args:
        graph: the float graph.
        interface: what is fed and fetched.
        options: those of ``quantize_nodes``.
        asked: the stage whose samples are run.
        files: their files.
    """

    graph: Graph
    interface: Interface
    options: Mapping[str, Any]
    asked: EvaluateStage | CalibrateStage
    files: Files

    def quantized(self, floats: Collection[str]) -> Graph:
        """The graph with its layers quantized, but for some."""
        rules: tuple[str, ...] = tuple(self.options.get("rule", ()))
        if floats:
            rules = (*rules, rule_text("float", floats))
        step = make_transform(QUANTIZER, {**self.options, "rule": rules})
        context = Context(self.interface.inputs, self.interface.kept)
        return step.apply(self.graph, context).graph


@contextmanager
def quantized_target(
    plan: Plan, executor: Executor, *, chosen: bool = False
) -> Iterator[QuantizedTarget]:
    """What one target's plan has before and around its quantization.

    Args:
        plan: the target's stages.
        executor: of the build; the stages up to the one that quantizes have run, or are run.
        chosen: of ``quantize: auto``, take the rules that it has chosen; else all layers that may
            be are quantized.

    Raises:
        UsageError: the target has no data.
        MobileprepError: what the stages before raise.
    """
    spec, asked = _quantizing(plan, chosen=chosen)
    source, files = _data(plan)
    assets = source.assets
    read = [asked.graph, asked.interface, *([asked.ranges] if asked.ranges else []), assets]
    if isinstance(asked, ChoiceStage):
        read += [asked.ranking, asked.tries]
    inputs = {up: executor.obtain(up) for up in read}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        handover = Handover(Plan((), ()))
        exchange = StoreExchange(spec.task, executor.state.store, inputs, handover, folder)
        job = Job(spec.task, asked, exchange, folder)
        interface = job.record(Interface, asked.interface)
        with asset_folder(job.path(assets)) as lying:
            graph = with_found_assets(job.graph(asked.graph), (lying,))
            options = options_of(asked) if isinstance(asked, TransformStage) else {**asked.options}
            if asked.ranges is not None:
                options["range_file"] = str(job.path(asked.ranges))
            if isinstance(asked, ChoiceStage):
                options["rule"] = (*_chosen_rules(job, asked), *own_rules(asked))
            yield QuantizedTarget(graph, interface, options, source, files)


def _chosen_rules(job: Job[Any], asked: ChoiceStage) -> tuple[str, ...]:
    best = best_try(recorded_tries(job, asked.tries))
    return () if best is None else level_rules(ranked(job, asked.ranking), best.levels)


def _quantizing(
    plan: Plan, *, chosen: bool
) -> tuple[StageSpec, TransformStage | RankStage | ChoiceStage]:
    """The stage that quantizes the float graph, all layers of it or those that were chosen."""
    for spec in reversed(plan.stages):
        asked = spec.stage
        if isinstance(asked, ChoiceStage if chosen else RankStage):
            return spec, asked
        if isinstance(asked, TransformStage) and asked.transform == QUANTIZER:
            return spec, asked
    message = f"the plan has no stage of {QUANTIZER}"
    raise InternalError(message)


def _data(plan: Plan) -> tuple[EvaluateStage | CalibrateStage, Files]:
    """The stage whose samples are to run, and their files."""
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
    """Arrays as the graph takes them, run by run, and how many samples they hold.

    Raises:
        AccuracyError: the data does not fit, or has fewer samples.
        CorruptFileError: it cannot be read.
    """
    asked = subject.asked
    declared = {fed.name: fed.shape for fed in asked.inputs}
    inputs = data_inputs(subject.graph, subject.interface.inputs, declared)
    if isinstance(asked, CalibrateStage):
        reading, strict, labels = asked.calibration.data, asked.calibration.strict, asked.labels
    else:
        reading, strict = asked.reading, asked.strict
        labels = next((m.labels for m in asked.metrics if m.labels), USUAL_LABELS)
    data = open_dataset(
        data_files(subject.files, reading),
        inputs,
        replace(choice, strict=strict),
        labels=labels,
        warn=warn,
    )
    found = list(runs(data, inputs, _BATCH))
    # One that is filled up counts some samples twice.
    whole = [run for run in found if run.fed == run.count]
    kept = whole or found
    return [run.feeds for run in kept], sum(run.count for run in kept)
