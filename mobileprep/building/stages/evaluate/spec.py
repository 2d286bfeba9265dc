"""The stage `evaluate`: its parameters, inputs, outputs, and record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from msgspec import Struct, field, structs

from mobileprep.building.plan.engines import EngineRecord, MeasuringStage, engine_choice
from mobileprep.building.plan.sources import data_files, single_file
from mobileprep.building.plan.spec import Files, StageSpec, places
from mobileprep.building.stages.freeze.spec import Frozen
from mobileprep.core.declare import Located
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Data, InputFile, InputSpec
from mobileprep.recipe.validation_settings import (
    AUTO,
    USUAL_LABELS,
    MetricChoice,
    MetricFunction,
    NamedValidation,
    Validation,
    metric_facts,
)


class MeasuredMetric(Located, frozen=True, kw_only=True):
    """A metric to compute for a graph.

    Args:
        metric: metric name, or the name of a Python function.
        python: slot of the function's file; empty for a built-in metric.
        outputs: measured tensors; empty for the first, or for all.
        labels: name of the array of labels; None for comparisons with the source.
        labels_needed: whether missing labels are an error.
        peak, threshold, ignore, characters: see ``recipe.validation_settings.MetricChoice``.
        place: location in the recipe for messages.
    """

    metric: str
    python: str = ""
    outputs: tuple[str, ...] = ()
    labels: str | None = "label"
    labels_needed: bool = True
    peak: float | None = None
    threshold: float | None = None
    ignore: int | None = None
    characters: tuple[str, ...] = ()
    place: str = ""
    aside: ClassVar[frozenset[str]] = frozenset({"place"})


class EvaluateStage(MeasuringStage, frozen=True, kw_only=True):
    """Run a graph on data, compute its metrics, and store its outputs.

    Args:
        data: the data.
        reading: reading options; None to detect them from the content.
        metrics: metrics to compute.
        functions: Python files of metrics, by slot.
        samples: number of samples; None for all.
        seed: seed for drawing samples; None to space them evenly.
        batch: batch size.
        strict: whether an unreadable sample is an error.
        inputs: the inputs.
        looks_at_data: whether to warn about the data itself; False for a target's model, because
            the evaluation of its source warns.
    """

    stage_name: ClassVar[str] = "evaluate"
    stage_version: ClassVar[int] = 9
    OUTPUTS: ClassVar[str] = "outputs.npz"
    RECORD: ClassVar[str] = "evaluation.json"
    DATA: ClassVar[str] = "data.json"

    data: Files
    reading: Data | None = None
    metrics: tuple[MeasuredMetric, ...]
    functions: Mapping[str, Files] = field(default_factory=dict)
    samples: int | None = None
    seed: int | None = None
    batch: int = 64
    strict: bool = False
    inputs: tuple[InputSpec, ...] = ()
    looks_at_data: bool = False

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record, the outputs for each sample, and the record of the data."""
        return (self.RECORD, self.OUTPUTS, self.DATA)


class MetricValue(Struct, frozen=True):
    """Value of a metric for a graph.

    Args:
        metric: metric name, with ``auto`` resolved.
        outputs: measured tensors; empty for all.
        value: the value; None for comparisons with the source.
        classes: number of classes; None for other metrics.
    """

    metric: str
    outputs: tuple[str, ...]
    value: float | None
    classes: int | None = None


class EvaluationRecord(Struct, frozen=True):
    """Metrics of a graph on data, ``evaluation.json``.

    Args:
        outputs: the fetched tensors.
        samples: number of samples.
        metrics: values in the order of the recipe.
        warnings: reasons why the values may be unreliable.
        engine: engine that ran the graph.
        basis: the measured file: ``measured on digits.pb (numpy)``; empty for graphs other than a
            target's model.
    """

    outputs: tuple[str, ...]
    samples: int
    metrics: tuple[MetricValue, ...]
    warnings: tuple[str, ...]
    engine: EngineRecord
    basis: str = ""


SOURCE_LABEL: Final = "evaluate-source"
"""Label of the task that evaluates the source."""


def evaluate_spec(
    target: Target,
    validation: Validation,
    label: str,
    frozen: Frozen,
    model: Mapping[str, Any] | None = None,
    *,
    looks_at_data: bool = False,
) -> StageSpec:
    """Return the stage that runs a graph or the packaged model on the data and measures it."""
    stage = EvaluateStage(
        data=data_files(validation.data),
        reading=validation.data,
        samples=validation.samples,
        seed=validation.seed,
        batch=validation.batch,
        strict=validation.strict,
        inputs=target.inputs,
        metrics=tuple(_measured_metric(choice, validation.data) for choice in validation.metrics),
        functions={_slot(file): single_file(file) for file in validation.functions},
        interface=frozen.interface,
        assets=frozen.assets,
        looks_at_data=looks_at_data,
        **(model or {"graph": frozen.graph, "engine": engine_choice(target)}),
    )
    keys = target.validation_keys(validation)
    where = places(target, "inputs", "outputs", "engine", "protect")
    return StageSpec(label, stage, {**where, "validation": target.place(keys)})


def labeled(label: str, validation: Validation) -> str:
    """Append the name of a validation's data set to the label of its task, if it has one."""
    return f"{label}/{validation.name}" if isinstance(validation, NamedValidation) else label


def _measured_metric(choice: MetricChoice, data: Data) -> MeasuredMetric:
    function = choice.metric if isinstance(choice.metric, MetricFunction) else None
    name = choice.metric if function is None else function.function
    assert isinstance(name, str)
    facts = None if function is not None else metric_facts(name)
    of_labels = facts is None or facts.of_labels
    return MeasuredMetric(
        metric=name,
        python="" if function is None else _slot(function.python),
        outputs=choice.named_outputs,
        labels=(choice.labels or USUAL_LABELS) if of_labels else None,
        labels_needed=choice.labels is not None
        or data.names_labels
        or (function is None and name != AUTO),
        peak=choice.peak,
        threshold=choice.threshold,
        ignore=choice.ignore,
        characters=tuple(choice.characters or ()),
        place=choice.place,
    )


def _slot(file: InputFile) -> str:
    return f"metric {file.name}"


class EngineLine(EngineRecord, frozen=True, kw_only=True):
    """The engine that ran a graph, and its agreement with the interpreter.

    Args:
        graph: ``source``, ``model``, or ``after`` a transform.
    """

    graph: str


def engine_line(graph: str, record: EngineRecord) -> EngineLine:
    return EngineLine(graph=graph, **structs.asdict(record))


def engine_lines(engines: Sequence[EngineLine]) -> Iterator[str]:
    """Yield a line for each engine: the graphs that it ran, and its agreement."""
    groups: dict[tuple[str, str, bool], list[EngineLine]] = {}
    for line in engines:
        # LiteRT may run graphs that agree and a file that does not.
        is_apart = line.within is not None and line.within > line.tolerance
        key = f"{line.name} {line.version}".rstrip(), line.unlike, is_apart
        groups.setdefault(key, []).append(line)
    for (engine, unlike, _), lines in groups.items():
        # For several checked transforms, show only the number.
        after = [line for line in lines if line.graph not in ("source", "model")]
        ran = [line.graph for line in lines if line not in after]
        if after:
            ran.append(f"{len(after)} transforms' graphs" if len(after) > 1 else after[0].graph)
        yield f"engine   {engine} ran {', '.join(ran)}: {_agreement(lines, unlike)}"


def _agreement(lines: Sequence[EngineLine], unlike: str) -> str:
    if unlike:
        return f"not compared with numpy: {unlike}"
    apart = [line.within for line in lines if line.within is not None]
    if not apart:
        return "it is the reference, so nothing is compared"
    count = max(line.samples for line in lines)
    samples = f"{count} sample{'s' * (count > 1)}"
    within, allowed = max(apart), lines[0].tolerance
    if within > allowed:
        return (
            "differs from the graph before conversion, run with numpy, by at most "
            f"{within:.0e} of the largest value ({samples})"
        )
    return (
        f"agrees with numpy within {within:.0e} of the largest value "
        f"({samples}; at most {allowed:.0e} is allowed)"
    )
