"""The check stage: compares the outputs of a step's graph or of the model with the source's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from mobileprep.building.plan.records import CheckRecord, EngineRecord, Interface
from mobileprep.building.plan.running_stages import CheckStage
from mobileprep.building.stages.assets import with_assets
from mobileprep.building.stages.base import Job, stage
from mobileprep.building.stages.running import (
    basis_of,
    compared_with_reference,
    measured_graph,
    measuring_engine,
    storable,
)
from mobileprep.building.stages.samples import read_runs
from mobileprep.errors import InvalidGraphError, MissedLimitError, UsageError
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.differences import (
    Difference,
    differences,
    not_finite,
    shown_difference,
)

_STEP_HINT = "leave the step out, or look at its parameters"
_MODEL_HINT = "use a gentler quantization"
# A share of the peak that nobody should learn of from the report alone.
_LARGE = 0.1


@stage(CheckStage)
def run(job: Job[CheckStage]) -> None:
    """Leaves ``check.json``.

    Raises:
        AccuracyError: an output is further from the source's than ``max_difference``, has
            another shape, or is NaN or infinite where the source's is not, or the reverse.
        InvalidGraphError: the graph does not run.
    """
    asked = job.asked
    interface = job.record(Interface, asked.interface)
    expected = read_runs(job.path(asked.expected))
    feeds = _feeds(job, interface)
    found, engine = _run(job, interface, feeds)
    basis = basis_of(job, engine)
    gaps = differences(interface.outputs, expected, found, job.place("transforms"))
    none = Difference("", 0.0, 0.0, 0.0)
    worst = max(gaps, key=lambda gap: (gap.share, not gap.is_source_lost), default=none)
    if not math.isfinite(worst.share):
        place = job.place("max_difference" if worst.is_source_lost else "transforms")
        raise not_finite(worst, _subject(job), feeds, _hint(job)).at(place)
    _judge(job, worst)
    record = CheckRecord(
        asked.step,
        worst.name,
        shown_difference(max((g.absolute for g in gaps), default=0.0)),
        shown_difference(worst.share),
        asked.max_difference,
        engine,
        basis,
    )
    job.write_record(asked.RECORD, record)


def _judge(job: Job[CheckStage], worst: Difference) -> None:
    """Whether the output that is furthest from the source's is near enough."""
    where, hint, limit = _subject(job), _hint(job), job.asked.max_difference
    told = f"{where} the output {worst}"
    if limit is None:
        if worst.share > max([_LARGE, *_earlier(job)]):
            job.warn(f"{told}; 'check: {{max_difference: ...}}' would refuse it")
    elif worst.share > limit:
        message = f"{told}; at most {limit:.3g} is allowed"
        hint = f"{hint}, or raise max_difference ({job.place('max_difference')})"
        raise MissedLimitError(message, hint, job.place("transforms"), job.task)


def _subject(job: Job[CheckStage]) -> str:
    """What is checked, for messages: ``after a_step`` or ``in digits.tflite``."""
    measured = job.asked.measured
    return f"after {job.asked.step}" if measured is None else f"in {measured.name}"


def _earlier(job: Job[CheckStage]) -> Iterator[float]:
    """What the checks of steps have found; the model's repeats no warning of theirs."""
    for upstream in job.asked.earlier:
        yield job.record(CheckRecord, upstream).share_of_peak


def _hint(job: Job[CheckStage]) -> str:
    return _STEP_HINT if job.asked.measured is None else _MODEL_HINT


def _feeds(job: Job[CheckStage], interface: Interface) -> list[dict[str, Array]]:
    """The inputs of each run; without inputs the source ran once."""
    runs = read_runs(job.path(job.asked.samples))
    return [dict(zip(interface.inputs, run, strict=True)) for run in runs] or [{}]


def _run(
    job: Job[CheckStage], interface: Interface, feeds: Sequence[Mapping[str, Array]]
) -> tuple[list[list[Array]], EngineRecord]:
    """The outputs for each sample, and the engine that ran the graph or file."""
    asked = job.asked
    graph = measured_graph(job)
    where = _subject(job)
    with with_assets(graph, job.path(asked.assets)) as graph:
        engine = measuring_engine(job, graph, where, "check")
        try:
            found = [engine.run(interface.outputs, given) for given in feeds]
        except (InvalidGraphError, UsageError) as error:
            # The source ran, so the step or the packaging is at fault.
            message = f"{where} the graph does not run: {error.message}"
            raise InvalidGraphError(message, _hint(job), job.place("transforms")) from error
        record = compared_with_reference(
            job, engine, graph, interface.outputs, feeds[0], samples=1, where=where
        )
    return [[storable(array) for array in outputs] for outputs in found], record
