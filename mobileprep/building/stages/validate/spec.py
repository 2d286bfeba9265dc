"""The stage `validate`: its parameters, inputs, outputs, and records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct

from mobileprep.building.plan.engines import BEFORE_CONVERSION, EngineRecord
from mobileprep.building.plan.spec import Stage, StageSpec, Upstream, places
from mobileprep.building.stages.calibrate.spec import CalibrateStage
from mobileprep.building.stages.evaluate.spec import EvaluateStage, labeled
from mobileprep.core.declare import Located
from mobileprep.recipe.model import Target
from mobileprep.recipe.validation_settings import (
    MetricChoice,
    MetricFunction,
    Validation,
    metric_facts,
)


class JudgedMetric(Located, frozen=True, kw_only=True):
    """Limits of a metric; see ``MetricRecord``.

    Args:
        place: location of the first limit, for messages.
    """

    higher_is_better: bool = True
    max_drop: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    place: str = ""
    aside: ClassVar[frozenset[str]] = frozenset({"place"})


class Accuracy(Struct, frozen=True):
    """Comparison of the artifact with the source graph.

    Args:
        samples: number of samples.
        metrics: each metric before and after, with its limits.
        outputs: difference of each output from the source's.
        largest_difference: largest difference of any element of any output.
        warnings: reasons why the comparison may be unreliable.
        basis: the measured file: ``measured on digits.pb (numpy)``.
    """

    samples: int
    metrics: tuple[MetricRecord, ...]
    outputs: tuple[OutputRecord, ...]
    largest_difference: float
    warnings: tuple[str, ...] = ()
    basis: str = ""

    @property
    def is_of_graph(self) -> bool:
        """Whether the values are those of the graph instead of the packaged file."""
        return BEFORE_CONVERSION in self.basis


class ValidationRecord(Accuracy, frozen=True, kw_only=True):
    """Comparison of the published model with the source, ``validation.json``.

    Args:
        engines: engines that ran the source and the model.
    """

    engines: ValidationEngines


class ValidateStage(Stage, frozen=True, kw_only=True):
    """Compare an artifact's outputs and metrics with the source's.

    Args:
        metrics: limits of each metric, in the order of the evaluations.
        before: record of the source's evaluation.
        after: record of the artifact's evaluation.
        before_outputs: outputs of the source.
        after_outputs: outputs of the artifact.
        data: record of the validation data; None to skip warnings about it.
        calibrations: records of the data that the target was calibrated on.
    """

    stage_name: ClassVar[str] = "validate"
    stage_version: ClassVar[int] = 6
    RECORD: ClassVar[str] = "validation.json"
    reported: ClassVar[type[Struct] | None] = ValidationRecord

    metrics: tuple[JudgedMetric, ...]
    before: Upstream
    after: Upstream
    before_outputs: Upstream
    after_outputs: Upstream
    data: Upstream | None = None
    calibrations: tuple[Upstream, ...] = ()


class ValidationEngines(Struct, frozen=True):
    """Engines that ran the source and the published model."""

    source: EngineRecord
    model: EngineRecord


class MetricRecord(Struct, frozen=True):
    """A metric of the source and of the published model.

    Args:
        metric: metric name, or the name of a Python function.
        output: measured tensor, or several separated by commas.
        before: value of the source; 1 for an agreement.
        after: value of the model.
        drop: by how much the model is worse: the decrease of the metric, or the increase of an
            error.
        higher_is_better: whether a higher value is better.
        max_drop: permitted ``drop``; None for no limit.
        at_least: permitted minimum of ``after``; None for no limit.
        at_most: permitted maximum of ``after``; None for no limit.
    """

    metric: str
    output: str
    before: float
    after: float
    drop: float
    higher_is_better: bool
    max_drop: float | None
    at_least: float | None
    at_most: float | None


class OutputRecord(Struct, frozen=True):
    """Difference of an output of the published model from the source's.

    Args:
        output: tensor name.
        largest_difference: largest difference of any element; None if it has another shape.
        share_of_peak: the difference, as a fraction of the source's largest magnitude.
    """

    output: str
    largest_difference: float | None
    share_of_peak: float | None


def validate_spec(
    target: Target, validation: Validation, before: str, after: str, calibrations: Sequence[str]
) -> StageSpec:
    """Return the stage that compares the evaluations."""
    stage = ValidateStage(
        data=Upstream(before, EvaluateStage.DATA),
        calibrations=tuple(Upstream(task, CalibrateStage.DATA) for task in calibrations),
        **comparison(validation, before, after),
    )
    where = {
        **places(target, "outputs"),
        "validation": target.place(target.validation_keys(validation)),
    }
    return StageSpec(labeled(f"{target.folder}/validate", validation), stage, where)


def comparison(validation: Validation, before: str, after: str) -> dict[str, Any]:
    """Return the fields of a ``ValidateStage`` for two evaluations; see ``validate_spec``."""
    return {
        "metrics": tuple(map(_judged_metric, validation.metrics)),
        "before": Upstream(before, EvaluateStage.RECORD),
        "after": Upstream(after, EvaluateStage.RECORD),
        "before_outputs": Upstream(before, EvaluateStage.OUTPUTS),
        "after_outputs": Upstream(after, EvaluateStage.OUTPUTS),
    }


def _judged_metric(choice: MetricChoice) -> JudgedMetric:
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
