"""The validate stage: compares an artifact's outputs and metrics with the source's."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from mobileprep.errors import AccuracyError, MissedLimitError
from mobileprep.metrics.agreement import AgreementKind, OutputAgreement
from mobileprep.metrics.base import OutputError
from mobileprep.metrics.catalogue import FREE_SHAPES
from mobileprep.numerics.differences import shown_difference
from mobileprep.plan.records import (
    EvaluationRecord,
    MetricRecord,
    MetricValue,
    OutputRecord,
    ValidationEngines,
    ValidationRecord,
)
from mobileprep.plan.running_stages import JudgedMetric, ValidateStage
from mobileprep.stages.base import Job, stage
from mobileprep.stages.outputs import KeptOutputs, each_pair

# What the difference of two metrics may be off by, as a share of the larger: far less than one
# sample of any test set.
_ROUNDING: Final = 1e-9
_TOP_K: Final = re.compile(r"top([0-9]+)")


@stage(ValidateStage)
def run(job: Job[ValidateStage]) -> None:
    """Leaves ``validation.json``.

    Raises:
        AccuracyError: a metric is worse than it may be, or an output has another shape, or NaN or
            infinity in other places.
    """
    asked = job.asked
    before = job.record(EvaluationRecord, asked.before)
    after = job.record(EvaluationRecord, asked.after)
    compared = _compared(job, before)
    outputs = tuple(_output(job, name, compared[name]) for name in before.outputs)
    judged = [
        (limits, record)
        for limits, old, new in zip(asked.metrics, before.metrics, after.metrics, strict=True)
        for record in _records(job, limits, old, new, compared)
    ]
    missed = [(limits, record) for limits, record in judged if _is_missed(record)]
    if missed:
        raise _missed(job, missed, before.samples)
    record = ValidationRecord(
        samples=before.samples,
        metrics=tuple(_shown(record) for _, record in judged),
        outputs=outputs,
        largest_difference=max((o.largest_difference or 0.0 for o in outputs), default=0.0),
        warnings=tuple(_warnings(job, before, after)),
        engines=ValidationEngines(before.engine, after.engine),
    )
    job.write_record(asked.RECORD, record)


def _compared(job: Job[ValidateStage], before: EvaluationRecord) -> dict[str, OutputAgreement]:
    """How each output compares with the source's, batch by batch.

    Raises:
        AccuracyError: the shapes of an output differ.
    """
    names = before.outputs
    free = {name for m in before.metrics if m.metric in FREE_SHAPES for name in m.outputs}
    found = {name: OutputAgreement(name) for name in names}
    kept = [
        KeptOutputs(job.path(upstream), len(names))
        for upstream in (job.asked.before_outputs, job.asked.after_outputs)
    ]
    place = job.place("outputs")
    for count, pairs in each_pair(*kept):
        for name, pair in zip(names, pairs, strict=True):
            if pair is None:
                found[name].pass_over()
            else:
                found[name].update(*pair, count, where=place, free=name in free)
    return found


def _output(job: Job[ValidateStage], name: str, compared: OutputAgreement) -> OutputRecord:
    largest, share = compared.largest, compared.share_of_peak
    if largest is None or share is None:
        return OutputRecord(name, None, None)
    if not math.isfinite(largest):
        message = f"the output {name!r} is NaN or infinite in the source or the artifact alone"
        raise AccuracyError(message, "a transform has broken the model", job.place("outputs"))
    return OutputRecord(name, shown_difference(largest), shown_difference(share))


def _records(
    job: Job[ValidateStage],
    limits: JudgedMetric,
    before: MetricValue,
    after: MetricValue,
    compared: Mapping[str, OutputAgreement],
) -> Iterator[MetricRecord]:
    """A metric before and after; an agreement of no output in particular is one of each."""
    if before.value is not None and after.value is not None:
        outputs = ", ".join(before.outputs)
        yield _record(limits, before.metric, outputs, before.value, after.value)
        return
    for name in before.outputs or compared:
        try:
            value = compared[name].value(cast("AgreementKind", before.metric))
        except OutputError as error:
            raise AccuracyError(error.message, error.hint, job.place("outputs")) from error
        yield _record(limits, before.metric, name, 1.0, value)


def _record(
    limits: JudgedMetric, metric: str, output: str, before: float, after: float
) -> MetricRecord:
    is_better = limits.higher_is_better
    drop = before - after if is_better else after - before
    allowed = limits.max_drop, limits.at_least, limits.at_most
    return MetricRecord(metric, output, before, after, drop, is_better, *allowed)


def _shown(record: MetricRecord) -> MetricRecord:
    """A record to six digits: those beyond depend on the processor's BLAS."""
    before, after, drop = (
        float(f"{value:.6g}") for value in (record.before, record.after, record.drop)
    )
    limits = record.max_drop, record.at_least, record.at_most
    is_better = record.higher_is_better
    return MetricRecord(record.metric, record.output, before, after, drop, is_better, *limits)


def _is_missed(record: MetricRecord) -> bool:
    return any(True for _ in _complaints(record, 1))


def _missed(
    job: Job[ValidateStage], missed: Sequence[tuple[JudgedMetric, MetricRecord]], samples: int
) -> AccuracyError:
    """The error that tells every limit that is missed, at the place of the first."""
    told = [text for _, record in missed for text in _complaints(record, samples)]
    hint = "use a gentler quantization, or change the limit"
    if missed[0][1].max_drop is not None:
        hint = "use a gentler quantization, or raise max_drop"
    place = missed[0][0].place or job.place("validation")
    if all(_is_missed(replace(r, after=r.before, drop=0.0)) for _, r in missed):
        # The source misses them as well: nothing that was done to it is to blame.
        return AccuracyError("\n".join(told), hint, place)
    return MissedLimitError("\n".join(told), hint, place, job.task)


def _complaints(record: MetricRecord, samples: int) -> Iterator[str]:
    """A sentence for each limit that a metric misses."""
    title, after = _title(record), record.after
    slack = _ROUNDING * max(abs(record.before), abs(after))
    if record.max_drop is not None and record.drop > record.max_drop + slack:
        moved = "fell" if record.higher_is_better else "rose"
        amount = f"{record.drop:.4g}, from {record.before:.6g} to {after:.6g}"
        of = f"{samples} samples"
        if _TOP_K.fullmatch(record.metric):
            amount = f"{record.drop:.4f}, from {record.before:.4f} to {after:.4f}"
            of = f"{round(record.drop * samples)} of {of}"
        yield f"{title} {moved} by {amount} ({of}); at most {record.max_drop} is allowed"
    told = f"{title} is {after:.6g} ({samples} samples), and the source's {record.before:.6g}"
    if record.at_least is not None and after < record.at_least:
        yield f"{told}; at least {record.at_least} is asked for"
    if record.at_most is not None and after > record.at_most:
        yield f"{told}; at most {record.at_most} is asked for"


def _title(record: MetricRecord) -> str:
    top = _TOP_K.fullmatch(record.metric)
    return f"top-{top[1]} accuracy" if top else f"{record.metric} of {record.output!r}"


def _warnings(
    job: Job[ValidateStage], before: EvaluationRecord, after: EvaluationRecord
) -> Iterator[str]:
    """What makes the comparison worth less than it seems."""
    yield from dict.fromkeys((*before.warnings, *after.warnings))
    for limits, metric in zip(job.asked.metrics, before.metrics, strict=True):
        if not _TOP_K.fullmatch(metric.metric) or metric.value or limits.at_least:
            continue
        told = (
            f"the source gets none of the {before.samples} samples right, so its accuracy cannot "
            "fall; are the labels, and the order of the classes, those of this model?"
        )
        job.warn(told)
        yield told
