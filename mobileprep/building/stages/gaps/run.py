"""Compare the metrics of several data sets, and check the limits of their differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.evaluate.spec import EvaluationRecord
from mobileprep.building.stages.gaps.spec import DataSetAccuracy, DataSets, Gap, GapsStage
from mobileprep.building.stages.validate.report import accuracy_of, metric_text, metric_title
from mobileprep.building.stages.validate.spec import MetricRecord, ValidationRecord
from mobileprep.errors import AccuracyError


def run(job: Job[GapsStage]) -> None:
    """Write ``gaps.json``.

    Raises:
        AccuracyError: a metric differs more between data sets than the recipe permits, or two data
            sets have different metrics.
    """
    settings = job.asked
    accuracies = [
        accuracy_of(job.record(ValidationRecord, upstream)) for upstream in settings.validations
    ]
    records = [list(_by_metric(job, index)) for index in range(len(settings.names))]
    gaps: list[Gap] = []
    missed: list[tuple[Gap, str, str]] = []
    for limit in settings.limits:
        name = settings.names[limit.data_set]
        pairs = records[limit.data_set][limit.metric], records[0][limit.first_metric]
        if [(r.metric, r.output) for r in pairs[0]] != [(r.metric, r.output) for r in pairs[1]]:
            own, other = (", ".join(f"{r.metric} of {r.output!r}" for r in some) for some in pairs)
            message = f"'max_gap' of {name!r} compares {own} with {other} of {settings.names[0]!r}"
            hint = "name the metric and the output in both validations"
            raise AccuracyError(message, hint, limit.place)
        for record, first in zip(*pairs, strict=True):
            gap = _gap(record, name, first, settings.names[0], limit.max_gap)
            gaps.append(gap)
            if gap.gap > gap.max_gap:
                text = f"{_complaint(gap, record)}; {accuracies[limit.data_set].basis}"
                missed.append((gap, text, limit.place))
    if missed:
        gap, _, place = missed[0]
        cure = "train with samples like those of both data sets"
        if gap.source_gap <= gap.max_gap:
            cure = "use a gentler quantization"
        message = "\n".join(text for _, text, _ in missed)
        raise AccuracyError(message, f"{cure}, or raise max_gap", place)
    data_sets = tuple(
        DataSetAccuracy(name=name, **structs.asdict(accuracy))
        for name, accuracy in zip(settings.names, accuracies, strict=True)
    )
    job.write_record(settings.RECORD, DataSets(data_sets, tuple(gaps)))


def _by_metric(job: Job[GapsStage], index: int) -> Iterator[Sequence[MetricRecord]]:
    """Yield the values of each metric of a validation: an agreement has one for each output."""
    rest = job.record(ValidationRecord, job.asked.validations[index]).metrics
    evaluation = job.record(EvaluationRecord, job.asked.evaluations[index])
    for metric in evaluation.metrics:
        count = 1 if metric.value is not None else len(metric.outputs or evaluation.outputs)
        yield rest[:count]
        rest = rest[count:]


def _gap(
    record: MetricRecord, name: str, first: MetricRecord, first_name: str, max_gap: float
) -> Gap:
    """Compare a metric of two data sets. The values have six digits, and so has the gap."""
    gap, source_gap = (
        float(f"{abs(one - other):.6g}")
        for one, other in ((record.after, first.after), (record.before, first.before))
    )
    return Gap(
        *(record.metric, record.output, name, record.after, first_name, first.after),
        *(gap, source_gap, max_gap),
    )


def _complaint(gap: Gap, record: MetricRecord) -> str:
    """Describe a gap that exceeds its limit."""
    first, value = metric_text(record, gap.first_value), metric_text(record, gap.value)
    return (
        f"{metric_title(record)} is {first} on {gap.first_name!r} and {value} on {gap.name!r}: the "
        f"gap of {gap.gap:.6g} exceeds the limit of {gap.max_gap:g}, and the source's is "
        f"{gap.source_gap:.6g}"
    )
