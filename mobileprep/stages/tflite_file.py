"""The file for LiteRT among what a target ships: apart, since it is slow to import."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from mobileprep.formats.range_file import read_range_file
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.fsio import write_bytes
from mobileprep.ir.graph import Graph
from mobileprep.litert.convert import INTEGERS, MODES, Mode, converted
from mobileprep.litert.flex import flex_of
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.quantizing.settings import Integers
from mobileprep.plan.records import Interface
from mobileprep.plan.stages import PackageStage
from mobileprep.stages.base import Job


def leave_tflite(job: Job[PackageStage], graph: Graph, path: Path, warnings: list[str]) -> int:
    """Leave a file for LiteRT; its length in bytes.

    What the app has to link for it joins ``warnings``, and which operators stay float though
    others compute in integers.

    Raises:
        UnsupportedError: naming every node that LiteRT cannot express; or flatbuffers is missing.
    """
    interface = job.record(Interface, job.asked.interface)
    inputs = [CutInput(name) for name in interface.inputs]
    notes: list[str] = []
    where = job.place("artifact")
    mode: Mode = "float"
    if job.asked.quantize.mode in MODES:
        mode = cast(Mode, job.asked.quantize.mode)
    model = converted(
        graph,
        inputs,
        interface.outputs,
        mode=mode,
        integers=_integers(job) if mode in INTEGERS else None,
        flex=job.asked.flex,
        where=where,
        tell=notes.append,
    )
    for note in notes:
        job.warn(f"{job.place('quantize')}: {note}")
    warnings += notes
    flexible = flex_of(model)
    if flexible:
        warnings.append(f"the app has to link the Flex delegate, for {', '.join(flexible)}")
        job.warn(f"{where}: {warnings[-1]}")
    content = model_bytes(model, str(path))
    write_bytes(path, bytes(content))
    return len(content)


def _integers(job: Job[PackageStage]) -> Integers:
    """How the recipe has a file compute in integers."""
    asked = job.asked.quantize
    ranges = {}
    if job.asked.ranges is not None:
        measured = read_range_file(job.path(job.asked.ranges)).tensors
        ranges = {name: (found.low, found.high) for name, found in measured.items()}
    return Integers(
        INTEGERS[cast(Mode, asked.mode)],
        ranges,
        is_trained=asked.ranges == "trained",
        rules=tuple(rule.text for rule in asked.rules),
        input_type=asked.inference_input_type,
        output_type=asked.inference_output_type,
    )
