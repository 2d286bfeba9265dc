"""The check stage: runs a step's graph on sample inputs, and compares with the source's outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mobileprep.errors import AccuracyError, InvalidGraphError, UsageError
from mobileprep.ir.files import read_graph
from mobileprep.ir.tensor import Array
from mobileprep.ops.differences import largest_difference, shown_difference
from mobileprep.ops.engines.assets import with_found_assets
from mobileprep.ops.samples import sample_feeds
from mobileprep.stages.assets import asset_folder
from mobileprep.stages.base import Job, stage
from mobileprep.stages.interface import read_interface
from mobileprep.stages.running import EngineRecord, compared_with_reference, stage_engine

_HINT = "leave the step out, or look at its parameters"


@stage("check")
def run(job: Job) -> None:
    """Leaves ``check.json``.

    Raises:
        AccuracyError: the step's outputs are NaN or infinite where the source's are not.
        InvalidGraphError: the step's graph does not run.
    """
    step = job.parameters["step"]
    outputs = read_interface(job).outputs
    expected, found, engine = _run(job, outputs)
    gaps = [
        largest_difference(x, y, name, job.place("transforms"))
        for name, x, y in zip(outputs, expected, found, strict=True)
    ]
    largest = max(gaps, default=0.0)
    if not math.isfinite(largest):
        message = f"after {step} the outputs are not numbers where the source's are"
        raise AccuracyError(message, _HINT, job.place("transforms"))
    facts = {
        "step": step,
        "largest_difference": shown_difference(largest),
        "engine": engine.as_data(),
    }
    job.write_json("check.json", facts)


def _run(job: Job, fetches: Sequence[str]) -> tuple[list[Array], list[Array], EngineRecord]:
    """What the source and the step's graph give for a sample, and what ran the latter."""
    source, graph = (read_graph(job.inputs[slot]) for slot in ("source", "graph"))
    feeds = sample_feeds(source, read_interface(job).inputs)
    where = f"after {job.parameters['step']}"
    with asset_folder(job) as folder:
        source, graph = (with_found_assets(g, (folder,)) for g in (source, graph))
        expected = stage_engine(job, source, "the source").run(fetches, feeds)
        engine = stage_engine(job, graph, where)
        try:
            found = engine.run(fetches, feeds)
        except (InvalidGraphError, UsageError) as error:
            # The source ran: what is wrong is the step's doing.
            message = f"{where} the graph does not run: {error.message}"
            raise InvalidGraphError(message, _HINT, job.place("transforms")) from error
        record = compared_with_reference(job, engine, graph, fetches, feeds, samples=1, where=where)
    return expected, found, record
