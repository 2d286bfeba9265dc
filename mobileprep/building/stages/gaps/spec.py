"""The stage `gaps`: its parameters, inputs, outputs, record, and lines of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from msgspec import Struct

from mobileprep.building.plan.spec import Stage, StageSpec, Upstream, places
from mobileprep.building.report.layout import plain, table
from mobileprep.building.stages.evaluate.spec import EvaluateStage
from mobileprep.building.stages.validate.spec import Accuracy, ValidateStage
from mobileprep.core.declare import Located
from mobileprep.recipe.model import Target
from mobileprep.recipe.validation import gap_partner
from mobileprep.recipe.validation_settings import NamedValidation


class GapLimit(Located, frozen=True, kw_only=True):
    """Limit of the difference of a metric between a data set and the first one.

    Args:
        data_set: index of the data set, from 1.
        metric: index of the metric in its validation.
        first_metric: index of the metric in the first validation.
        max_gap: largest permitted difference.
        place: location of the limit, for messages.
    """

    data_set: int
    metric: int
    first_metric: int
    max_gap: float
    place: str = ""
    aside: ClassVar[frozenset[str]] = frozenset({"place"})


class DataSetAccuracy(Accuracy, frozen=True, kw_only=True):
    """The comparison of the artifact with the source on a named data set."""

    name: str


class Gap(Struct, frozen=True):
    """Difference of a metric of the published model between two data sets.

    Args:
        metric: metric name, or the name of a Python function.
        output: measured tensor, or several separated by commas.
        name: name of the data set.
        value: value on it.
        first_name: name of the first data set.
        first_value: value on it.
        gap: absolute difference of the two values.
        source_gap: the same for the source.
        max_gap: largest permitted difference.
    """

    metric: str
    output: str
    name: str
    value: float
    first_name: str
    first_value: float
    gap: float
    source_gap: float
    max_gap: float


class DataSets(Struct, frozen=True):
    """Validations on several data sets, and the limited gaps between them, ``gaps.json``.

    Args:
        data_sets: accuracy on each data set, in the order of the recipe.
        gaps: differences from the first data set that the recipe limits.
    """

    data_sets: tuple[DataSetAccuracy, ...]
    gaps: tuple[Gap, ...]


class GapsStage(Stage, frozen=True, kw_only=True):
    """Collect the validations of a target, and compare their metrics.

    Args:
        names: names of the data sets.
        limits: limits of the differences.
        validations: record of each validation.
        evaluations: record of the artifact's evaluation on each data set.
    """

    stage_name: ClassVar[str] = "gaps"
    stage_version: ClassVar[int] = 1
    RECORD: ClassVar[str] = "gaps.json"
    reported: ClassVar[type[Struct] | None] = DataSets

    names: tuple[str, ...]
    limits: tuple[GapLimit, ...]
    validations: tuple[Upstream, ...]
    evaluations: tuple[Upstream, ...]


def gaps_spec(
    target: Target, evaluations: Sequence[str], validations: Sequence[str]
) -> StageSpec | None:
    """Return the stage that compares data sets; None for a validation without a name."""
    named = [one for one in target.validations if isinstance(one, NamedValidation)]
    if not named:
        return None
    limits = tuple(
        GapLimit(
            data_set=number,
            metric=index,
            first_metric=partner,
            max_gap=choice.max_gap,
            place=choice.gap_place,
        )
        for number, validation in enumerate(named)
        for index, choice in enumerate(validation.metrics)
        if choice.max_gap is not None and (partner := gap_partner(choice, named[0])) is not None
    )
    stage = GapsStage(
        names=tuple(one.name for one in named),
        limits=limits,
        validations=tuple(Upstream(task, ValidateStage.RECORD) for task in validations),
        evaluations=tuple(Upstream(task, EvaluateStage.RECORD) for task in evaluations),
    )
    return StageSpec(f"{target.folder}/gaps", stage, places(target, "validation"))


_HEADINGS = ("metric", "output", "data set", "value", "compared with", "its value", "gap", "limit")


def gap_lines(gaps: tuple[Gap, ...]) -> Iterator[str]:
    """Yield a line for each gap that the recipe limits."""
    for gap in gaps:
        metric, output, name, value, first_name, first, difference, limit = _cells(gap)
        yield (
            f"gap      {metric} of {output!r}: {value} on {name}, {first} on {first_name}; "
            f"{difference} apart, at most {limit}"
        )


def gap_markdown(gaps: tuple[Gap, ...]) -> Iterator[str]:
    """Yield a table of the gaps that the recipe limits."""
    if gaps:
        yield ""
        yield from table(_HEADINGS, (list(map(plain, _cells(gap))) for gap in gaps))


def _cells(gap: Gap) -> tuple[str, ...]:
    numbers = (f"{n:.6g}" for n in (gap.value, gap.first_value, gap.gap, gap.max_gap))
    value, first, difference, limit = numbers
    names = gap.metric, gap.output, gap.name
    return *names, value, gap.first_name, first, difference, limit
