"""Compare the published model with the source, and check its limits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.calibrate.spec import DataRecord
from mobileprep.building.stages.evaluate.run import KeptOutputs, each_pair
from mobileprep.building.stages.evaluate.spec import EvaluationRecord, MetricValue
from mobileprep.building.stages.validate.report import TOP_K
from mobileprep.building.stages.validate.spec import (
    JudgedMetric,
    MetricRecord,
    OutputRecord,
    ValidateStage,
    ValidationEngines,
    ValidationRecord,
)
from mobileprep.data.metrics.base import FREE_SHAPES, OutputError
from mobileprep.data.metrics.regression import AgreementKind, OutputAgreement
from mobileprep.errors import AccuracyError, MissedLimitError
from mobileprep.ops.numerics.differences import shown_difference

# With fewer samples, an accuracy near chance is not significant. With more, it must exceed chance
# by so many standard deviations of guessing.
_FEW: Final = 16


_SPREADS: Final = 2


# Ratio of two ranges that indicates another scale.
_WIDER: Final = 16


def run(job: Job[ValidateStage]) -> None:
    """Write ``validation.json``.

    Raises:
        AccuracyError: a metric misses a limit, or an output has another shape, or NaN or infinity
            in other places.
    """
    settings = job.asked
    judgement = judged(job)
    before, after, missed = judgement.before, judgement.after, judgement.missed
    if missed:
        raise _missed_error(job, missed, before.samples, after.basis)
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
    job.write_record(settings.RECORD, record)


def _shown(record: MetricRecord) -> MetricRecord:
    """Round the values to six digits. Further digits depend on the processor's BLAS."""
    before, after, drop = (
        float(f"{value:.6g}") for value in (record.before, record.after, record.drop)
    )
    return replace(record, before=before, after=after, drop=drop)


def _missed_error(
    job: Job[ValidateStage],
    missed: Sequence[tuple[JudgedMetric, MetricRecord]],
    samples: int,
    basis: str,
) -> AccuracyError:
    """Create the error for all missed limits, at the location of the first."""
    messages = [f"{text}; {basis}" for _, record in missed for text in complaints(record, samples)]
    hint = "use a gentler quantization, or change the limit"
    if missed[0][1].max_drop is not None:
        hint = "use a gentler quantization, or raise max_drop"
    place = missed[0][0].place or job.place("validation")
    if all(list(complaints(replace(r, after=r.before, drop=0.0), samples)) for _, r in missed):
        # The source misses them as well, so the transforms are not the cause.
        return AccuracyError("\n".join(messages), hint, place)
    return MissedLimitError("\n".join(messages), hint, place, job.task)


def _warnings(
    job: Job[ValidateStage], before: EvaluationRecord, after: EvaluationRecord
) -> Iterator[str]:
    """Yield reasons why the comparison may be unreliable."""
    yield from dict.fromkeys((*before.warnings, *after.warnings))
    warnings = [*_chances(job, before), *_data_warnings(job)]
    for warning in warnings:
        job.warn(warning)
    yield from warnings


def _chances(job: Job[ValidateStage], before: EvaluationRecord) -> Iterator[str]:
    """Warn about accuracies of the source that are near chance."""
    samples = before.samples
    for limits, metric in zip(job.asked.metrics, before.metrics, strict=True):
        top = TOP_K.fullmatch(metric.metric)
        if top is None or metric.value is None or metric.classes is None or limits.at_least:
            continue
        chance = int(top[1]) / metric.classes
        spread = math.sqrt(chance * (1 - chance) / samples)
        # With few samples, a good model may be wrong about most of them.
        if metric.value and (samples < _FEW or metric.value > chance + _SPREADS * spread):
            continue
        yield (
            f"the source's top-{top[1]} accuracy is {metric.value:.4f} on {samples} samples, near "
            f"chance: {chance:.4f} for {metric.classes} classes. Check that the labels and the "
            f"order of the classes are the model's, and how samples are scaled{_input_ranges(job)}"
        )


def _input_ranges(job: Job[ValidateStage]) -> str:
    """Describe the range of each input in the validation data."""
    if job.asked.data is None:
        return ""
    ends = job.record(DataRecord, job.asked.data).ends
    ranges = [f"{name!r} is fed {low:.4g} to {high:.4g}" for name, (low, high) in ends.items()]
    return f" ({', '.join(ranges)})" if ranges else ""


def _data_warnings(job: Job[ValidateStage]) -> Iterator[str]:
    """Warn about calibration data that overlaps or does not match the validation data."""
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


# Rounding error of the difference of two metrics, as a fraction of the larger: far less than one
# sample of any test set.
_ROUNDING: Final = 1e-9


class Judgement(Struct, frozen=True):
    """Comparison of an artifact with the source.

    Args:
        before: the source's evaluation.
        after: the artifact's evaluation.
        outputs: differences of the outputs.
        metrics: limits and values of each metric.
    """

    before: EvaluationRecord
    after: EvaluationRecord
    outputs: tuple[OutputRecord, ...]
    metrics: tuple[tuple[JudgedMetric, MetricRecord], ...]

    @property
    def missed(self) -> tuple[tuple[JudgedMetric, MetricRecord], ...]:
        """Metrics that miss a limit."""
        return tuple(
            (limits, record) for limits, record in self.metrics if any(complaints(record, 1))
        )


def judged(job: Job[ValidateStage]) -> Judgement:
    """Compare the two evaluations."""
    settings = job.asked
    before = job.record(EvaluationRecord, settings.before)
    after = job.record(EvaluationRecord, settings.after)
    compared = _compare(job, before)
    outputs = tuple(_output(job, name, compared[name]) for name in before.outputs)
    metrics = tuple(
        (limits, record)
        for limits, old, new in zip(settings.metrics, before.metrics, after.metrics, strict=True)
        for record in _records(job, limits, old, new, compared)
    )
    return Judgement(before, after, outputs, metrics)


def complaints(record: MetricRecord, samples: int) -> Iterator[str]:
    """Yield a sentence for each limit that a metric misses."""
    top, after = TOP_K.fullmatch(record.metric), record.after
    title = f"top-{top[1]} accuracy" if top else f"{record.metric} of {record.output!r}"
    slack = _ROUNDING * max(abs(record.before), abs(after))
    if record.max_drop is not None and record.drop > record.max_drop + slack:
        moved = "fell" if record.higher_is_better else "rose"
        amount = f"{record.drop:.4g}, from {record.before:.6g} to {after:.6g}"
        of = f"{samples} samples"
        if top:
            amount = f"{record.drop:.4f}, from {record.before:.4f} to {after:.4f}"
            of = f"{round(record.drop * samples)} of {of}"
        yield f"{title} {moved} by {amount} ({of}); at most {record.max_drop} is allowed"
    sentence = f"{title} is {after:.6g} ({samples} samples), and the source's {record.before:.6g}"
    if record.at_least is not None and after < record.at_least:
        yield f"{sentence}; at least {record.at_least} is required"
    if record.at_most is not None and after > record.at_most:
        yield f"{sentence}; at most {record.at_most} is required"


def shortfall(record: MetricRecord) -> float:
    """Return by how much a metric misses its limits, in its own unit; 0 if it meets them."""
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


def _compare(job: Job[ValidateStage], before: EvaluationRecord) -> dict[str, OutputAgreement]:
    """Compare each output with the source's, batch by batch."""
    names = before.outputs
    free = {name for m in before.metrics if m.metric in FREE_SHAPES for name in m.outputs}
    agreements = {name: OutputAgreement(name) for name in names}
    stored = [
        KeptOutputs(job.path(upstream), len(names))
        for upstream in (job.asked.before_outputs, job.asked.after_outputs)
    ]
    place = job.place("outputs")
    for count, pairs in each_pair(*stored):
        for name, pair in zip(names, pairs, strict=True):
            if pair is None:
                agreements[name].pass_over()
            else:
                agreements[name].update(*pair, count, where=place, free=name in free)
    return agreements


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
    """Yield a metric before and after. An agreement without outputs is computed for each output."""
    if before.value is not None and after.value is not None:
        outputs = ", ".join(before.outputs)
        yield _record(limits, before.metric, outputs, before.value, after.value)
        return
    for name in before.outputs or compared:
        try:
            value = compared[name].value(cast(AgreementKind, before.metric))
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
