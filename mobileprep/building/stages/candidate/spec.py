"""The stage `candidate`: its parameters, inputs, outputs, and record."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from mobileprep.building.plan.spec import Stage, StageSpec, Upstream, places
from mobileprep.building.stages.freeze.spec import Frozen
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import InputSpec, Platform
from mobileprep.targets.targets import Device


class Candidate(Struct, frozen=True):
    """A model and its numbers, ``candidate.json``; None where a number is unknown.

    Args:
        model: path of the model, or its name in the recipe.
        reason: why the model cannot be counted; empty if it can.
        parameters: number of elements of the constants that a run reads.
        float_bytes: size of these constants as float32.
        eightbit_bytes: their size with those of at least 1,024 elements in 8 bits.
        compressed_bytes: range of the size of the 8-bit constants compressed by zlib; both ends are
            the same if they were compressed.
        flops: operations of one run; without those of ``uncounted``.
        uncounted: ops with an unknown number of operations.
        best_seconds: time of one run at the device's rate.
        likely_seconds: range of the time of one run.
        ram_bytes: peak memory while the model is loaded and run; None if it is not known.
        lacks: ops that the runtime lacks, with the cause if it is TensorFlow Mobile.
        metric: the metric on labeled samples.
        notes: sentences about missing information for this model.
        assumptions: sentences about the estimates.
    """

    model: str
    reason: str = ""
    parameters: int | None = None
    float_bytes: int | None = None
    eightbit_bytes: int | None = None
    compressed_bytes: tuple[int, ...] = ()
    flops: int | None = None
    uncounted: tuple[str, ...] = ()
    best_seconds: float | None = None
    likely_seconds: tuple[float, ...] = ()
    ram_bytes: int | None = None
    lacks: tuple[str, ...] = ()
    metric: float | None = None
    notes: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


class CandidateStage(Stage, frozen=True, kw_only=True):
    """Count the source of a target whose recipe has several models.

    Args:
        model: name of the model in the recipe.
        artifact: format of the target's model, which determines the runtime.
        platform: platform of TensorFlow Mobile.
        registration: releases of TensorFlow Mobile.
        device: device for the latency.
        inputs: inputs, with the shapes that the recipe declares.
        graph: the frozen source.
        interface: inputs and outputs.
    """

    stage_name: ClassVar[str] = "candidate"
    stage_version: ClassVar[int] = 1
    RECORD: ClassVar[str] = "candidate.json"
    reported: ClassVar[type[Struct] | None] = Candidate

    model: str
    artifact: str
    platform: Platform
    registration: tuple[str, ...] = ()
    device: Device | None = None
    inputs: tuple[InputSpec, ...] = ()
    graph: Upstream
    interface: Upstream


def candidate_spec(target: Target, frozen: Frozen) -> StageSpec | None:
    """Return the stage that counts a target's source; None if the recipe has one model."""
    if target.model is None:
        return None
    stage = CandidateStage(
        model=target.model,
        artifact=target.artifact,
        platform=target.platform,
        registration=target.registration,
        device=target.device,
        inputs=target.inputs,
        graph=frozen.graph,
        interface=frozen.interface,
    )
    return StageSpec(f"{target.folder}/candidate", stage, places(target, "inputs"))
