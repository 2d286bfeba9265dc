"""The stage `validate`: its parameters, inputs, outputs, and records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct

from mobileprep.building.plan.engines import EngineRecord
from mobileprep.building.plan.spec import Stage, StageSpec, Upstream, places
from mobileprep.building.stages.calibrate.spec import CalibrateStage
from mobileprep.building.stages.evaluate.spec import EvaluateStage
from mobileprep.core.declare import Located
from mobileprep.recipe.metrics import metric_facts
from mobileprep.recipe.model import Target
from mobileprep.recipe.validation_settings import MetricChoice, MetricFunction, Validation


class JudgedMetric(Located, frozen=True, kw_only=True):
    """What is allowed of a metric; see ``records.MetricRecord``.

    Args:
        place: where the first limit stands, for messages.
    """

    higher_is_better: bool = True
    max_drop: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    place: str = ""
    aside: ClassVar[frozenset[str]] = frozenset({"place"})


class ValidationRecord(Struct, frozen=True):
    """How the model that ships compares with the source, ``validation.json``.

    Args:
        samples: how many.
        metrics: those that were asked for.
        outputs: every output.
        largest_difference: of any element of any output.
        warnings: what makes the comparison worth less than it seems.
        engines: what ran the two.
        basis: what the model's numbers were measured on: ``measured on digits.pb (numpy)``.
    """

    samples: int
    metrics: tuple[MetricRecord, ...]
    outputs: tuple[OutputRecord, ...]
    largest_difference: float
    warnings: tuple[str, ...]
    engines: ValidationEngines
    basis: str = ""


class ValidateStage(Stage, frozen=True, kw_only=True):
    """Compares an artifact's outputs and metrics with the source's.

    Args:
        metrics: what is allowed of each metric, in the order of the evaluations.
        before: the record of the source's evaluation.
        after: the record of the artifact's.
        before_outputs: what the source gave.
        after_outputs: what the artifact gave.
        data: the record of the validation's data; None without a look at it.
        calibrations: the records of the data that the target was calibrated on.
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

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record alone."""
        return (self.RECORD,)


class ValidationEngines(Struct, frozen=True):
    """What ran the source, and what ran the model that ships."""

    source: EngineRecord
    model: EngineRecord


class MetricRecord(Struct, frozen=True):
    """A metric of the source and of the model that ships.

    Args:
        metric: its name; of a Python function, the function's.
        output: the tensor that it is of, or several with commas.
        before: the source's; of an agreement 1.
        after: the model's.
        drop: how much worse the model is: what a metric fell by, or an error rose by.
        higher_is_better: which of the two it is.
        max_drop: what is allowed; None for no such limit.
        at_least: the least that is allowed of ``after``.
        at_most: the most.
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
    """How far an output of the model that ships is from the source's.

    Args:
        output: the tensor.
        largest_difference: of any element; None where it has another shape.
        share_of_peak: the same as a share of the largest magnitude that the source gives.
    """

    output: str
    largest_difference: float | None
    share_of_peak: float | None


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
