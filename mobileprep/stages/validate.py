"""The validate stage: compares an artifact's outputs and accuracy with the source's."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mobileprep.errors import AccuracyError
from mobileprep.formats.arrays import read_arrays
from mobileprep.numerics.differences import largest_difference, shown_difference
from mobileprep.plan.records import EvaluationRecord, ValidationEngines, ValidationRecord
from mobileprep.plan.running_stages import ValidateStage
from mobileprep.stages.base import Job, stage


@stage(ValidateStage)
def run(job: Job[ValidateStage]) -> None:
    """Leaves ``validation.json``.

    Raises:
        AccuracyError: top-1 accuracy fell by more than ``max_drop``, a share of the samples, or
            an output has another shape, or NaN or infinity in other places.
    """
    asked = job.asked
    before = job.record(EvaluationRecord, asked.before)
    after = job.record(EvaluationRecord, asked.after)
    lost = before.correct - after.correct
    if lost > asked.max_drop * before.samples:
        message = (
            f"top-1 accuracy fell by {lost / before.samples:.4f}, from {before.top1:.4f} to "
            f"{after.top1:.4f} ({lost} of {before.samples} samples); at most {asked.max_drop} is "
            "allowed"
        )
        hint = "use a gentler quantization, or raise max_drop"
        raise AccuracyError(message, hint, job.place("max_drop"))
    record = ValidationRecord(
        samples=before.samples,
        top1_before=before.top1,
        top1_after=after.top1,
        drop=lost / before.samples,
        max_drop=asked.max_drop,
        largest_difference=shown_difference(_largest_difference(job, before.outputs)),
        warnings=tuple(_warnings(before, job)),
        engines=ValidationEngines(before.engine, after.engine),
    )
    job.write_record(asked.RECORD, record)


def _warnings(before: EvaluationRecord, job: Job[ValidateStage]) -> list[str]:
    """What makes the comparison worth less than it seems."""
    if before.correct:
        return []
    told = (
        f"the source gets none of the {before.samples} samples right, so its accuracy cannot "
        "fall; are the labels, and the order of the classes, those of this model?"
    )
    job.warn(told)
    return [told]


def _largest_difference(job: Job[ValidateStage], names: Sequence[str]) -> float:
    """The largest absolute difference of any element of any output; NaN on both sides agrees."""
    before = read_arrays(job.path(job.asked.before_outputs))
    after = read_arrays(job.path(job.asked.after_outputs))
    largest = 0.0
    for key, expected in before.items():
        name = names[int(key)]
        gap = largest_difference(expected, after[key], name, job.place("outputs"))
        if not math.isfinite(gap):
            message = f"the output {name!r} is NaN or infinite in the source or the artifact alone"
            raise AccuracyError(message, "a transform has broken the model", job.place("outputs"))
        largest = max(largest, gap)
    return largest
