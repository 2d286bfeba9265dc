"""The stages of ``validation``: one that measures a graph, and one that compares two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mobileprep.plan.checks import Frozen
from mobileprep.plan.engines import engine_choice
from mobileprep.plan.running_stages import (
    CalibrateStage,
    EvaluateStage,
    JudgedMetric,
    MeasuredMetric,
    ValidateStage,
)
from mobileprep.plan.sources import data_files, single_file
from mobileprep.plan.spec import StageSpec, Upstream, places
from mobileprep.recipe.metrics import AUTO, metric_facts
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Data, InputFile
from mobileprep.recipe.validation_settings import (
    USUAL_LABELS,
    MetricChoice,
    MetricFunction,
    Validation,
)

SOURCE_LABEL: Final = "evaluate-source"
"""The task that evaluates the source."""


def evaluate_spec(
    target: Target,
    validation: Validation,
    label: str,
    frozen: Frozen,
    model: Mapping[str, Any] | None = None,
) -> StageSpec:
    """The stage that runs a graph or the packaged model on the data, and measures it.

    Args:
        target: the target.
        validation: its validation.
        label: the task's name.
        frozen: the graph.
        model: the packaged model, which runs in its place, see ``checks.model_of``.

    Raises:
        CorruptFileError: the data, or the file of a metric, is not there.
        UnsupportedError: the engine is not installed.
    """
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


def validate_spec(
    target: Target, validation: Validation, before: str, after: str, calibrations: Sequence[str]
) -> StageSpec:
    """The stage that compares what evaluations came to.

    Args:
        target: the target.
        validation: its validation.
        before: the task that evaluates the source.
        after: the task that evaluates what ships.
        calibrations: the tasks that have measured ranges for it.
    """
    stage = ValidateStage(
        data=Upstream(before, EvaluateStage.DATA),
        calibrations=tuple(Upstream(task, CalibrateStage.DATA) for task in calibrations),
        **comparison(validation, before, after),
    )
    return StageSpec(f"{target.folder}/validate", stage, places(target, "outputs", "validation"))


def comparison(validation: Validation, before: str, after: str) -> dict[str, Any]:
    """What a ``ValidateStage`` is told; see ``validate_spec``."""
    return {
        "metrics": tuple(map(_judged, validation.metrics)),
        "before": Upstream(before, EvaluateStage.RECORD),
        "after": Upstream(after, EvaluateStage.RECORD),
        "before_outputs": Upstream(before, EvaluateStage.OUTPUTS),
        "after_outputs": Upstream(after, EvaluateStage.OUTPUTS),
    }


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


def _judged(choice: MetricChoice) -> JudgedMetric:
    if isinstance(choice.metric, MetricFunction):
        is_better = choice.metric.higher_is_better
    else:
        facts = metric_facts(choice.metric)
        is_better = facts is None or facts.higher_is_better
    return JudgedMetric(
        higher_is_better=is_better,
        max_drop=choice.max_drop,
        at_least=choice.at_least,
        at_most=choice.at_most,
        place=choice.limit_place,
    )


def _slot(file: InputFile) -> str:
    return f"metric {file.name}"
