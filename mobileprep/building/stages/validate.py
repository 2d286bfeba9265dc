"""The validate stage: compares an artifact's outputs and metrics with the source's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from mobileprep.building.plan.records import (
    DataRecord,
    EvaluationRecord,
    MetricRecord,
    ValidationEngines,
    ValidationRecord,
)
from mobileprep.building.plan.running_stages import JudgedMetric, ValidateStage
from mobileprep.building.stages.base import Job, stage
from mobileprep.building.stages.judging import TOP_K, complaints, judged
from mobileprep.errors import AccuracyError, MissedLimitError

# Fewer samples than this say little of an accuracy; and how far from chance it is at least, in
# standard deviations of what guessing gives.
_FEW: Final = 16
_SPREADS: Final = 2
# How many times as wide a range has another scale.
_WIDER: Final = 16


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
        raise _missed(job, missed, before.samples, after.basis)
    record = ValidationRecord(
        samples=before.samples,
        metrics=tuple(_shown(record) for _, record in judgement.metrics),
        outputs=judgement.outputs,
        largest_difference=max(
            (o.largest_difference or 0.0 for o in judgement.outputs), default=0.0
        ),
        warnings=tuple(_warnings(job, before, after)),
        engines=ValidationEngines(before.engine, after.engine),
        basis=after.basis,
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
    job: Job[ValidateStage],
    missed: Sequence[tuple[JudgedMetric, MetricRecord]],
    samples: int,
    basis: str,
) -> AccuracyError:
    """The error that names every missed limit, at the location of the first."""
    told = [f"{text}; {basis}" for _, record in missed for text in complaints(record, samples)]
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
    found = [*_chances(job, before), *_data_warnings(job)]
    for warning in found:
        job.warn(warning)
    yield from found


def _chances(job: Job[ValidateStage], before: EvaluationRecord) -> Iterator[str]:
    """Accuracies of the source that guessing reaches too."""
    samples = before.samples
    for limits, metric in zip(job.asked.metrics, before.metrics, strict=True):
        top = TOP_K.fullmatch(metric.metric)
        if top is None or metric.value is None or metric.classes is None or limits.at_least:
            continue
        chance = int(top[1]) / metric.classes
        spread = math.sqrt(chance * (1 - chance) / samples)
        # Of few samples a good model may be wrong about most, and a guess right.
        if metric.value and (samples < _FEW or metric.value > chance + _SPREADS * spread):
            continue
        yield (
            f"the source's top-{top[1]} accuracy is {metric.value:.4f} on {samples} samples, near "
            f"chance: {chance:.4f} for {metric.classes} classes. Check that the labels and the "
            f"order of the classes are the model's, and how samples are scaled{_fed(job)}"
        )


def _fed(job: Job[ValidateStage]) -> str:
    """The range of each input on the validation's data."""
    if job.asked.data is None:
        return ""
    ends = job.record(DataRecord, job.asked.data).ends
    found = [f"{name!r} is fed {low:.4g} to {high:.4g}" for name, (low, high) in ends.items()]
    return f" ({', '.join(found)})" if found else ""


def _data_warnings(job: Job[ValidateStage]) -> Iterator[str]:
    """What the data of the calibration and that of the validation have in common, or not."""
    if job.asked.data is None:
        return
    data = job.record(DataRecord, job.asked.data)
    for upstream in job.asked.calibrations:
        fitted = job.record(DataRecord, upstream)
        both = set(fitted.digests) & set(data.digests)
        for one, other in ((fitted, data), (data, fitted)):
            count = sum(digest in both for digest in one.digests)
            if count > len(one.digests) / 2:
                kind = "calibration" if one is fitted else "validation"
                yield (
                    f"{count} of {len(one.digests)} {kind} samples of {one.name} are in "
                    f"{other.name} as well: the accuracy is that on samples which the ranges were "
                    "fitted to; calibrate on others"
                )
                break
        for name, (low, high) in fitted.ends.items():
            least, greatest = data.ends.get(name, (low, high))
            widths = sorted((high - low, greatest - least))
            if widths[1] > _WIDER * widths[0]:
                yield (
                    f"the input {name!r} is fed {low:.4g} to {high:.4g} by {fitted.name} in the "
                    f"calibration, and {least:.4g} to {greatest:.4g} by {data.name} in the "
                    "validation; look at the scale of the samples"
                )
