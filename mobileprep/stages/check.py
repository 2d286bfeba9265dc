"""The check stage: runs a step's graph on the samples, and compares with the source's outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from mobileprep.errors import InvalidGraphError, MissedLimitError, UsageError
from mobileprep.ir.tensor import Array
from mobileprep.numerics.differences import Difference, differences, not_finite, shown_difference
from mobileprep.plan.records import Interface
from mobileprep.plan.running_records import CheckRecord, EngineRecord
from mobileprep.plan.running_stages import CheckStage
from mobileprep.stages.assets import with_assets
from mobileprep.stages.base import Job, stage
from mobileprep.stages.running import compared_with_reference, stage_engine, storable
from mobileprep.stages.samples import read_runs

_HINT = "leave the step out, or look at its parameters"
# A share of the peak that nobody should learn of from the report alone.
_LARGE = 0.1


@stage(CheckStage)
def run(job: Job[CheckStage]) -> None:
    """Leaves ``check.json``.

    Raises:
        AccuracyError: an output is further from the source's than ``max_difference``, has
            another shape, or is NaN or infinite where the source's is not, or the reverse.
        InvalidGraphError: the step's graph does not run.
    """
    asked = job.asked
    interface = job.record(Interface, asked.interface)
    expected = read_runs(job.path(asked.expected))
    feeds = _feeds(job, interface)
    found, engine = _run(job, interface, feeds)
    gaps = differences(interface.outputs, expected, found, job.place("transforms"))
    none = Difference("", 0.0, 0.0, 0.0)
    worst = max(gaps, key=lambda gap: (gap.share, not gap.is_source_lost), default=none)
    if not math.isfinite(worst.share):
        place = job.place("max_difference" if worst.is_source_lost else "transforms")
        raise not_finite(worst, asked.step, feeds).at(place)
    _judge(job, worst)
    record = CheckRecord(
        asked.step,
        worst.name,
        shown_difference(max((g.absolute for g in gaps), default=0.0)),
        shown_difference(worst.share),
        asked.max_difference,
        engine,
    )
    job.write_record(asked.RECORD, record)


def _judge(job: Job[CheckStage], worst: Difference) -> None:
    """Whether the output that is furthest from the source's is near enough."""
    step, limit = job.asked.step, job.asked.max_difference
    told = f"after {step} the output {worst}"
    if limit is None:
        if worst.share > _LARGE:
            job.warn(f"{told}; 'check: {{max_difference: ...}}' would refuse it")
    elif worst.share > limit:
        message = f"{told}; at most {limit:.3g} is allowed"
        hint = f"{_HINT}, or raise max_difference ({job.place('max_difference')})"
        raise MissedLimitError(message, hint, job.place("transforms"), job.task)


def _feeds(job: Job[CheckStage], interface: Interface) -> list[dict[str, Array]]:
    """What is fed in each run; without inputs the source was run once all the same."""
    runs = read_runs(job.path(job.asked.samples))
    return [dict(zip(interface.inputs, run, strict=True)) for run in runs] or [{}]


def _run(
    job: Job[CheckStage], interface: Interface, feeds: Sequence[Mapping[str, Array]]
) -> tuple[list[list[Array]], EngineRecord]:
    """The outputs of the step's graph for each sample, and what ran it."""
    asked = job.asked
    graph = job.graph(asked.graph)
    where = f"after {asked.step}"
    with with_assets(graph, job.path(asked.assets)) as graph:
        engine = stage_engine(job, graph, where)
        try:
            found = [engine.run(interface.outputs, given) for given in feeds]
        except (InvalidGraphError, UsageError) as error:
            # The source ran: what is wrong is the step's doing.
            message = f"{where} the graph does not run: {error.message}"
            raise InvalidGraphError(message, _HINT, job.place("transforms")) from error
        record = compared_with_reference(
            job, engine, graph, interface.outputs, feeds[0], samples=1, where=where
        )
    return [[storable(array) for array in outputs] for outputs in found], record
