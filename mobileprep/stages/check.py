"""The check stage: runs a step's graph on sample inputs, and compares with the source's outputs."""

from __future__ import annotations

import math

from mobileprep.errors import AccuracyError
from mobileprep.ir.files import read_graph
from mobileprep.ops.differences import largest_difference, shown_difference
from mobileprep.ops.interpreter import Interpreter
from mobileprep.ops.samples import sample_feeds
from mobileprep.stages.base import Job, stage
from mobileprep.stages.interface import read_interface


@stage("check")
def run(job: Job) -> None:
    """Leaves ``check.json``.

    Raises:
        AccuracyError: the step's outputs are NaN or infinite where the source's are not.
    """
    interface = read_interface(job)
    source, graph = (read_graph(job.inputs[slot]) for slot in ("source", "graph"))
    feeds = sample_feeds(source, interface.inputs)
    expected = Interpreter(source, where="the source").run(interface.outputs, feeds)
    step = job.parameters["step"]
    found = Interpreter(graph, where=f"after {step}").run(interface.outputs, feeds)
    gaps = [
        largest_difference(x, y, name, job.place("transforms"))
        for name, x, y in zip(interface.outputs, expected, found, strict=True)
    ]
    largest = max(gaps, default=0.0)
    if not math.isfinite(largest):
        message = f"after {step} the outputs are not numbers where the source's are"
        hint = "leave the step out, or look at its parameters"
        raise AccuracyError(message, hint, job.place("transforms"))
    job.write_json("check.json", {"step": step, "largest_difference": shown_difference(largest)})
