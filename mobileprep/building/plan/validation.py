"""The stages of ``validation``: one that measures a graph, and one that compares two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mobileprep.building.plan.checks import Frozen, labels_of
from mobileprep.building.plan.engines import engine_choice
from mobileprep.building.plan.regular_expressions import regex_engine
from mobileprep.building.plan.running_stages import (
    CalibrateStage,
    EvaluateStage,
    JudgedMetric,
    MeasuredMetric,
    ValidateStage,
)
from mobileprep.building.plan.sources import data_files, single_file
from mobileprep.building.plan.spec import Files, StageFile, StageSpec, Upstream, places
from mobileprep.errors import CorruptFileError
from mobileprep.recipe.metrics import AUTO, metric_facts
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Data, InputFile
from mobileprep.recipe.validation_settings import (
    USUAL_LABELS,
    Calibration,
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


def validate_spec(
    target: Target, validation: Validation, before: str, after: str, calibrations: Sequence[str]
) -> StageSpec:
    """The stage that compares what evaluations came to."""
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


def calibrate_spec(
    target: Target,
    calibration: Calibration,
    label: str,
    graph: Upstream,
    frozen: Frozen,
    *,
    for_litert: bool = False,
) -> StageSpec:
    """The stage that finds the ranges of a float graph."""
    data, range_file = calibration_files(calibration)
    stage = CalibrateStage(
        calibration=calibration,
        data=data,
        labels=labels_of(target),
        inputs=target.inputs,
        range_file=range_file,
        graph=graph,
        source=frozen.graph,
        interface=frozen.interface,
        assets=frozen.assets,
        regular_expressions=regex_engine(),
        for_litert=for_litert,
        engine=engine_choice(target) if range_file is None and target.engine != "numpy" else None,
    )
    where = places(target, "calibration", "inputs", "outputs", "artifact", "engine")
    return StageSpec(label, stage, where)


def calibration_files(calibration: Calibration) -> tuple[Files | None, Files | None]:
    """The samples, and the range file; either may be missing where the other is there."""
    named, data = calibration.range_file, calibration.data
    if named is not None and named.path.is_file():
        known = None if data is None or not _is_there(data) else data_files(data)
        return known, single_file(named)
    if data is not None:
        return data_files(data), None
    hint = "name samples, 'data: samples.npz', and run 'mobileprep calibrate' to write it"
    name, place = ("", "") if named is None else (named.shown, named.place)
    message = f"the range file {name} is not there"
    raise CorruptFileError(message, hint, place)


def _is_there(data: Data) -> bool:
    return all(named.path.exists() for named in (data.file, *data.beside))


def calibration_members(target: Target) -> Iterator[StageFile]:
    """The files from outside that a target's calibration reads."""
    if target.calibration is None or not target.takes_ranges:
        return
    for files in calibration_files(target.calibration):
        yield from () if files is None else files.members
