"""The check stage: runs a step's graph on the samples, and compares with the source's outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from mobileprep.errors import AccuracyError, InvalidGraphError, MissedLimitError, UsageError
from mobileprep.ir.tensor import Array
from mobileprep.numerics.differences import Difference, differences, shown_difference
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
    worst = max(gaps, key=lambda gap: gap.share, default=Difference("", 0.0, 0.0, 0.0))
    if worst.is_source_lost:
        raise _unusable(job, worst, feeds)
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
    if not math.isfinite(worst.share):
        message = (
            f"after {step} the output {worst.name!r} is NaN or infinite where the source's is not"
        )
        raise AccuracyError(message, _HINT, job.place("transforms"))
    told = f"after {step} the output {worst}"
    if limit is None:
        if worst.share > _LARGE:
            job.warn(f"{told}; 'check: {{max_difference: ...}}' would refuse it")
    elif worst.share > limit:
        message = f"{told}; at most {limit:.3g} is allowed"
        hint = f"{_HINT}, or raise max_difference ({job.place('max_difference')})"
        raise MissedLimitError(message, hint, job.place("transforms"), job.task)


def _unusable(
    job: Job[CheckStage], gap: Difference, feeds: Sequence[Mapping[str, Array]]
) -> AccuracyError:
    """The error for samples on which the source itself gives no numbers."""
    fed = ", ".join(f"{name} {_spread([f[name] for f in feeds])}" for name in feeds[0])
    message = (
        f"the samples are unusable: for the output {gap.name!r} the source gives NaN or infinity "
        f"where the graph after {job.asked.step} gives numbers; fed: {fed}"
    )
    hint = "name samples that the model accepts: 'check: {data: FILE.npz}'"
    return AccuracyError(message, hint, job.place("max_difference"))


def _spread(arrays: Sequence[Array]) -> str:
    """The shape and the range of what an input is fed: ``[1, 3] from 0 to 1``."""
    text = str(list(arrays[0].shape))
    if arrays[0].dtype.kind not in "fiu" or not arrays[0].size:
        return text
    low, high = min(a.min() for a in arrays), max(a.max() for a in arrays)
    return f"{text} of {low:.4g}" if low == high else f"{text} from {low:.4g} to {high:.4g}"


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
