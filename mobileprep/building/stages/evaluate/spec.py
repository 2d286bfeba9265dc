"""The stage `evaluate`: its parameters, inputs, outputs, and record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from msgspec import Struct, field

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


def labelled(label: str, validation: Validation) -> str:
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
