"""The validate stage: compares an artifact's outputs and metrics with the source's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mobileprep.errors import AccuracyError, MissedLimitError
from mobileprep.plan.running_records import (
    EvaluationRecord,
    MetricRecord,
    ValidationEngines,
    ValidationRecord,
)
from mobileprep.plan.running_stages import JudgedMetric, ValidateStage
from mobileprep.stages.base import Job, stage
from mobileprep.stages.judging import TOP_K, complaints, judged


@stage(ValidateStage)
def run(job: Job[ValidateStage]) -> None:
    """Leaves ``validation.json``.

    Raises:
        AccuracyError: a metric is worse than it may be, or an output has another shape, or NaN or
            infinity in other places.
    """
    asked = job.asked
    judgement = judged(job)
    before, after, missed = judgement.before, judgement.after, judgement.missed
    if missed:
        raise _missed(job, missed, before.samples)
    record = ValidationRecord(
        samples=before.samples,
        metrics=tuple(_shown(record) for _, record in judgement.metrics),
        outputs=judgement.outputs,
        largest_difference=max(
            (o.largest_difference or 0.0 for o in judgement.outputs), default=0.0
        ),
        warnings=tuple(_warnings(job, before, after)),
        engines=ValidationEngines(before.engine, after.engine),
    )
    job.write_record(asked.RECORD, record)


def _shown(record: MetricRecord) -> MetricRecord:
    """A record to six digits: those beyond depend on the processor's BLAS."""
    before, after, drop = (
        float(f"{value:.6g}") for value in (record.before, record.after, record.drop)
    )
    limits = record.max_drop, record.at_least, record.at_most
    is_better = record.higher_is_better
    return MetricRecord(record.metric, record.output, before, after, drop, is_better, *limits)


def _missed(
    job: Job[ValidateStage], missed: Sequence[tuple[JudgedMetric, MetricRecord]], samples: int
) -> AccuracyError:
    """The error that tells every limit that is missed, at the place of the first."""
    told = [text for _, record in missed for text in complaints(record, samples)]
    hint = "use a gentler quantization, or change the limit"
    if missed[0][1].max_drop is not None:
        hint = "use a gentler quantization, or raise max_drop"
    place = missed[0][0].place or job.place("validation")
    if all(list(complaints(replace(r, after=r.before, drop=0.0), samples)) for _, r in missed):
        # The source misses them as well: nothing that was done to it is to blame.
        return AccuracyError("\n".join(told), hint, place)
    return MissedLimitError("\n".join(told), hint, place, job.task)


def _warnings(
    job: Job[ValidateStage], before: EvaluationRecord, after: EvaluationRecord
) -> Iterator[str]:
    """What makes the comparison worth less than it seems."""
    yield from dict.fromkeys((*before.warnings, *after.warnings))
    for limits, metric in zip(job.asked.metrics, before.metrics, strict=True):
        if not TOP_K.fullmatch(metric.metric) or metric.value or limits.at_least:
            continue
        told = (
            f"the source gets none of the {before.samples} samples right, so its accuracy cannot "
            "fall; are the labels, and the order of the classes, those of this model?"
        )
        job.warn(told)
        yield told
