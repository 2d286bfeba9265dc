"""How an artifact's outputs and metrics compare with the source's, and which limits they miss."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final, cast

from msgspec import Struct

from mobileprep.building.plan.records import (
    EvaluationRecord,
    MetricRecord,
    MetricValue,
    OutputRecord,
)
from mobileprep.building.plan.running_stages import JudgedMetric, ValidateStage
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.outputs import KeptOutputs, each_pair
from mobileprep.data.metrics.base import FREE_SHAPES, OutputError
from mobileprep.data.metrics.regression import AgreementKind, OutputAgreement
from mobileprep.errors import AccuracyError
from mobileprep.ops.numerics.differences import shown_difference

TOP_K: Final = re.compile(r"top([0-9]+)")
# What the difference of two metrics may be off by, as a share of the larger: far less than one
# sample of any test set.
_ROUNDING: Final = 1e-9


class Judgement(Struct, frozen=True):
    """How an artifact compares with the source.

    Args:
        before: the source's evaluation.
        after: the artifact's.
        outputs: each output.
        metrics: what is allowed of each metric, and what it came to.
    """

    before: EvaluationRecord
    after: EvaluationRecord
    outputs: tuple[OutputRecord, ...]
    metrics: tuple[tuple[JudgedMetric, MetricRecord], ...]

    @property
    def missed(self) -> tuple[tuple[JudgedMetric, MetricRecord], ...]:
        """The metrics that miss a limit."""
        return tuple(
            (limits, record) for limits, record in self.metrics if any(complaints(record, 1))
        )


def judged(job: Job[ValidateStage]) -> Judgement:
    """Compare the two evaluations."""
    asked = job.asked
    before = job.record(EvaluationRecord, asked.before)
    after = job.record(EvaluationRecord, asked.after)
    compared = _compared(job, before)
    outputs = tuple(_output(job, name, compared[name]) for name in before.outputs)
    metrics = tuple(
        (limits, record)
        for limits, old, new in zip(asked.metrics, before.metrics, after.metrics, strict=True)
        for record in _records(job, limits, old, new, compared)
    )
    return Judgement(before, after, outputs, metrics)


def complaints(record: MetricRecord, samples: int) -> Iterator[str]:
    """A sentence for each limit that a metric misses."""
    title, after = _title(record), record.after
    slack = _ROUNDING * max(abs(record.before), abs(after))
    if record.max_drop is not None and record.drop > record.max_drop + slack:
        moved = "fell" if record.higher_is_better else "rose"
        amount = f"{record.drop:.4g}, from {record.before:.6g} to {after:.6g}"
        of = f"{samples} samples"
        if TOP_K.fullmatch(record.metric):
            amount = f"{record.drop:.4f}, from {record.before:.4f} to {after:.4f}"
            of = f"{round(record.drop * samples)} of {of}"
        yield f"{title} {moved} by {amount} ({of}); at most {record.max_drop} is allowed"
    told = f"{title} is {after:.6g} ({samples} samples), and the source's {record.before:.6g}"
    if record.at_least is not None and after < record.at_least:
        yield f"{told}; at least {record.at_least} is asked for"
    if record.at_most is not None and after > record.at_most:
        yield f"{told}; at most {record.at_most} is asked for"


def shortfall(record: MetricRecord) -> float:
    """How far a metric misses its limits, in its own unit: 0 where they hold."""
    if not any(complaints(record, 1)):
        return 0.0
    gaps = [0.0]
    if record.max_drop is not None:
        gaps.append(record.drop - record.max_drop)
    if record.at_least is not None:
        gaps.append(record.at_least - record.after)
    if record.at_most is not None:
        gaps.append(record.after - record.at_most)
    return max(gaps)


def _compared(job: Job[ValidateStage], before: EvaluationRecord) -> dict[str, OutputAgreement]:
    """How each output compares with the source's, batch by batch."""
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


def _title(record: MetricRecord) -> str:
    top = TOP_K.fullmatch(record.metric)
    return f"top-{top[1]} accuracy" if top else f"{record.metric} of {record.output!r}"
