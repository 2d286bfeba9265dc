"""The validate stage: compares an artifact's outputs and accuracy with the source's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mobileprep.errors import AccuracyError
from mobileprep.formats.arrays import read_arrays
from mobileprep.numerics.differences import largest_difference, shown_difference
from mobileprep.stages.base import Job, stage


@stage("validate")
def run(job: Job) -> None:
    """Leaves ``validation.json``.

    Raises:
        AccuracyError: top-1 accuracy fell by more than ``max_drop``, a share of the samples, or
            an output has another shape, or NaN or infinity in other places.
    """
    before, after = job.read_json("before"), job.read_json("after")
    samples = before["samples"]
    lost = before["correct"] - after["correct"]
    allowed = job.parameters["max_drop"]
    if lost > allowed * samples:
        message = (
            f"top-1 accuracy fell by {lost / samples:.4f}, from {before['top1']:.4f} to "
            f"{after['top1']:.4f} ({lost} of {samples} samples); at most {allowed} is allowed"
        )
        hint = "use a gentler quantization, or raise max_drop"
        raise AccuracyError(message, hint, job.place("max_drop"))
    validation = {
        "samples": samples,
        "top1_before": before["top1"],
        "top1_after": after["top1"],
        "drop": lost / samples,
        "max_drop": allowed,
        "largest_difference": shown_difference(_largest_difference(job, before["outputs"])),
        "warnings": _warnings(before, job),
        "engines": {"source": before["engine"], "model": after["engine"]},
    }
    job.write_json("validation.json", validation)


def _warnings(before: Mapping[str, Any], job: Job) -> list[str]:
    """What makes the comparison worth less than it seems."""
    if before["correct"]:
        return []
    told = (
        f"the source gets none of the {before['samples']} samples right, so its accuracy cannot "
        "fall; are the labels, and the order of the classes, those of this model?"
    )
    job.warn(told)
    return [told]


def _largest_difference(job: Job, names: Sequence[str]) -> float:
    """The largest absolute difference of any element of any output; NaN on both sides agrees."""
    before = read_arrays(job.inputs["before_outputs"])
    after = read_arrays(job.inputs["after_outputs"])
    largest = 0.0
    for key, expected in before.items():
        name = names[int(key)]
        gap = largest_difference(expected, after[key], name, job.place("outputs"))
        if not math.isfinite(gap):
            message = f"the output {name!r} is NaN or infinite in the source or the artifact alone"
            raise AccuracyError(message, "a transform has broken the model", job.place("outputs"))
        largest = max(largest, gap)
    return largest
