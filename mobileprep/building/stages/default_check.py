"""The default check stage: how far a quantized model is from the source, as a warning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from mobileprep.building.plan.records import (
    CheckRecord,
    DefaultCheckRecord,
    EngineRecord,
    Interface,
    SamplesRecord,
)
from mobileprep.building.plan.running_stages import DefaultCheckStage
from mobileprep.building.plan.spec import PUBLISHED, Upstream
from mobileprep.building.stages.assets import with_assets
from mobileprep.building.stages.base import Job, stage
from mobileprep.building.stages.running import REFERENCE, stage_engine, storable
from mobileprep.building.stages.samples import read_runs
from mobileprep.errors import MobileprepError, UnsupportedError
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.differences import (
    Difference,
    differences,
    is_counted,
    shown_difference,
)
from mobileprep.ops.numerics.texts import class_count
from mobileprep.runtime.engines.agreement import TOLERANCE
from mobileprep.runtime.engines.choose import LITERT

# A share of the peak that nobody should learn of from the report alone, as in a check.
_LARGE: Final = 0.1
# Scores of the source that are nearer to each other, as a share of the best, are a tie.
_TIE: Final = 0.01
_DATA: Final = "add 'check: {data: FILE.npz}' with an array for each input"
_UNINSTALLED: Final = ("LiteRT is not installed", "pip install 'mobileprep[litert]'")


@stage(DefaultCheckStage)
def run(job: Job[DefaultCheckStage]) -> None:
    """Leaves ``default_check.json``. Warns, and never fails: nobody asked for the check."""
    asked = job.asked
    samples = job.record(SamplesRecord, asked.drawn)
    interface = job.record(Interface, asked.interface)
    check: CheckRecord | None = None
    if samples.warnings:
        warnings = [_unchecked(job, samples.warnings[0], _DATA)]
    else:
        try:
            check, warnings = _checked(job, interface, samples)
        except MobileprepError as error:
            warnings = [_unchecked(job, error.message, error.hint)]
    for warning in warnings:
        job.warn(warning)
    job.write_record(asked.RECORD, DefaultCheckRecord(asked.number, check, tuple(warnings)))


def _unchecked(job: Job[DefaultCheckStage], reason: str, hint: str) -> str:
    first, _, _ = reason.partition("\n")
    advice = f"{hint}; " if hint else ""
    return (
        f"{job.asked.step} was not checked against the source: {first}; {advice}"
        "'check: false' turns this warning off"
    )


def _checked(
    job: Job[DefaultCheckStage], interface: Interface, samples: SamplesRecord
) -> tuple[CheckRecord, list[str]]:
    asked = job.asked
    expected = read_runs(job.path(asked.expected))
    fed = read_runs(job.path(asked.samples))
    feeds = [dict(zip(interface.inputs, run, strict=True)) for run in fed] or [{}]
    results, engine = _results(job, interface.outputs, feeds)
    gaps = differences(interface.outputs, expected, results)
    worst = max(gaps, key=lambda gap: gap.share, default=Difference("", 0.0, 0.0, 0.0))
    flips = list(_flips(interface.outputs, expected, results))
    evidence = []
    if worst.share > _LARGE:
        evidence.append(f"the output {worst}")
    evidence += [
        f"{flip.changed} of {flip.samples} samples have another top-1 class in {flip.output!r}"
        for flip in flips
        if flip.changed
    ]
    source = "drawn samples" if samples.data is None else f"samples of {samples.data}"
    warning = (
        f"{'in' if asked.file else 'after'} {asked.step}, on {samples.samples} {source}, "
        f"{', and '.join(evidence)}{_advice(asked.alternatives)}"
    )
    record = CheckRecord(
        asked.step,
        worst.name,
        shown_difference(max((gap.absolute for gap in gaps), default=0.0)),
        shown_difference(worst.share),
        None,
        engine,
        _basis(asked.file, engine),
    )
    return record, [warning] if evidence else []


def _basis(file: Upstream | None, engine: EngineRecord) -> str:
    """See ``CheckRecord.basis``."""
    if file is None:
        return ""
    name = file.output.removeprefix(PUBLISHED)
    return f"measured on {name} ({f'{engine.name} {engine.version}'.strip()})"


def _advice(alternatives: Sequence[str]) -> str:
    if not alternatives:
        return "; leave the weights in float32, or validate on data of your own"
    return f"; to change less, try in this order: {', '.join(alternatives)}"


def _results(
    job: Job[DefaultCheckStage], outputs: Sequence[str], feeds: Sequence[Mapping[str, Array]]
) -> tuple[list[list[Array]], EngineRecord]:
    """What the quantized model gives for each sample, and what ran it."""
    asked = job.asked
    if asked.file is not None:
        if not asked.litert:
            raise UnsupportedError(*_UNINSTALLED)
        from mobileprep.runtime.engines.litert_engine import LiteRtModel

        model = LiteRtModel(job.path(asked.file))
        found = [model.run(outputs, given) for given in feeds]
        record = EngineRecord(LITERT, TOLERANCE, asked.litert, unlike="the check compares it")
    else:
        with with_assets(job.graph(asked.graph), job.path(asked.assets)) as graph:
            engine = stage_engine(job, graph, f"after {asked.step}")
            found = [engine.run(outputs, given) for given in feeds]
        record = EngineRecord(REFERENCE, TOLERANCE)
    return [[storable(array) for array in arrays] for arrays in found], record


class _Flips(NamedTuple):
    """How many of the samples have another top-1 class."""

    output: str
    changed: int
    samples: int


def _flips(
    outputs: Sequence[str], expected: Sequence[Sequence[Array]], found: Sequence[Sequence[Array]]
) -> Iterator[_Flips]:
    """The flips of each output that has a score for each of several classes."""
    for at, output in enumerate(outputs):
        before, after = ([run[at] for run in runs] for runs in (expected, found))
        classes = class_count(before[0].shape) if before and before[0].ndim > 1 else None
        if classes is None or classes < 2 or any(map(is_counted, before)):
            continue
        scores, others = (
            np.concatenate([array.reshape(-1, classes) for array in arrays])
            for arrays in (before, after)
        )
        rows = np.arange(len(scores))
        best = scores.max(axis=1)
        lead = best - scores[rows, others.argmax(axis=1)]
        yield _Flips(output, int(np.sum(lead > _TIE * np.abs(best))), len(scores))
