"""The stages of ``check``: one that makes the samples, and one for each transform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mobileprep.plan.engines import engine_parameters
from mobileprep.plan.sources import single_file
from mobileprep.plan.spec import InputFile, StageSpec, Upstream
from mobileprep.recipe.model import Check, Step, Target, digestible

SAMPLES: Final = "samples.npz"
EXPECTED: Final = "expected.npz"


def sample_files(target: Target) -> tuple[InputFile, ...]:
    """The file from outside that a target's ``check`` names.

    Raises:
        CorruptFileError: it is not there.
    """
    data = target.check.data if target.check is not None else None
    return () if data is None else single_file(data)


def samples_spec(target: Target, check: Check, frozen: Mapping[str, Upstream]) -> StageSpec:
    """The stage that finds or draws the samples, and runs the source on them.

    Args:
        target: the target.
        check: its check.
        frozen: what the freeze stage leaves: ``graph``, ``interface`` and ``assets``.
    """
    data, section = check.data, "check"
    if data is None and target.validation is not None:
        data, section = target.validation.data, "validation"
    parameters = {
        "data": None if data is None else data.name,
        "section": section,
        "count": check.samples,
        "inputs": [digestible(i) for i in target.inputs],
        **engine_parameters(target),
    }
    sections = ("check", "inputs", "outputs", "engine")
    return StageSpec(
        "samples",
        "samples",
        parameters,
        {} if data is None else {"data": single_file(data)},
        upstream=frozen,
        outputs=(SAMPLES, EXPECTED, "samples.json"),
        places={
            **{name: target.place((name,)) for name in sections},
            "data": target.place((section, "data")),
        },
    )


def check_spec(
    target: Target, check: Check, label: str, step: Step, compared: Mapping[str, Upstream]
) -> StageSpec:
    """The stage that compares the graph after a step with the source.

    Args:
        target: the target.
        check: its check.
        label: the step's.
        step: the step.
        compared: the step's ``graph``, the ``interface``, ``assets``, ``samples`` and
            ``expected``.
    """
    return StageSpec(
        f"{label}-check",
        "check",
        {"step": step.name, "max_difference": check.max_difference, **engine_parameters(target)},
        upstream=compared,
        outputs=("check.json",),
        places={
            "engine": target.place(("engine",)),
            "max_difference": target.place(("check", "max_difference")),
            "transforms": step.place,
        },
    )
