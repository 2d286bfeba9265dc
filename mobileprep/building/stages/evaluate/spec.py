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
from mobileprep.recipe.metrics import AUTO, metric_facts
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Data, InputFile, InputSpec
from mobileprep.recipe.validation_settings import (
    USUAL_LABELS,
    MetricChoice,
    MetricFunction,
    Validation,
)


class MeasuredMetric(Located, frozen=True, kw_only=True):
    """What is measured of a graph.

    Args:
        metric: its name; of a Python function, the function's.
        python: the slot of the function's file; empty for a metric of this package.
        outputs: the tensors that it is of; empty for the first, or for every one.
        labels: the name of the array of labels; None for what compares with the source.
        labels_needed: whether it is an error where the data has none.
        peak, threshold, ignore, characters: see ``recipe.validation_settings.MetricChoice``.
        place: where the recipe asks for it, for messages.
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
    """Runs a graph on data, measures it, and keeps its outputs.

    Args:
        data: the data.
        reading: how it is read; None where its content tells.
        metrics: what is measured.
        functions: the Python files of metrics, by slot.
        samples: how many are run; None for all.
        seed: draws them; None for those that are spread evenly.
        batch: how many are run at once.
        strict: whether one that cannot be read is an error.
        inputs: what is fed.
        looks_at_data: whether to warn of the data itself; of a target's model, the evaluation of
            its source has done so.
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
        """The record, what the graph gives for each sample, and the record of the data."""
        return (self.RECORD, self.OUTPUTS, self.DATA)


class MetricValue(Struct, frozen=True):
    """What a graph comes to by one metric.

    Args:
        metric: its name, ``auto`` resolved.
        outputs: the tensors that it is of; empty for each.
        value: None for what compares a model with the source.
        classes: how many there are to choose from; None for other metrics.
    """

    metric: str
    outputs: tuple[str, ...]
    value: float | None
    classes: int | None = None


class EvaluationRecord(Struct, frozen=True):
    """How a graph does on data, ``evaluation.json``.

    Args:
        outputs: the tensors that were fetched.
        samples: how many.
        metrics: in the order in which they are asked for.
        warnings: what makes them worth less than they seem.
        engine: what ran the graph.
        basis: what was measured: ``measured on digits.pb (numpy)``; empty for other graphs than
            a target's model.
    """

    outputs: tuple[str, ...]
    samples: int
    metrics: tuple[MetricValue, ...]
    warnings: tuple[str, ...]
    engine: EngineRecord
    basis: str = ""


SOURCE_LABEL: Final = "evaluate-source"
"""The task that evaluates the source."""


def evaluate_spec(
    target: Target,
    validation: Validation,
    label: str,
    frozen: Frozen,
    model: Mapping[str, Any] | None = None,
) -> StageSpec:
    """The stage that runs a graph or the packaged model on the data, and measures it."""
    stage = EvaluateStage(
        data=data_files(validation.data),
        reading=validation.data,
        samples=validation.samples,
        seed=validation.seed,
        batch=validation.batch,
        strict=validation.strict,
        inputs=target.inputs,
        metrics=tuple(_measured(choice, validation.data) for choice in validation.metrics),
        functions={_slot(file): single_file(file) for file in validation.functions},
        interface=frozen.interface,
        assets=frozen.assets,
        looks_at_data=label == SOURCE_LABEL,
        **(model or {"graph": frozen.graph, "engine": engine_choice(target)}),
    )
    where = places(target, "validation", "inputs", "outputs", "engine", "protect")
    return StageSpec(label, stage, where)


def _measured(choice: MetricChoice, data: Data) -> MeasuredMetric:
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
