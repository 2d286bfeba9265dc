"""The transform stage: one step of a chain, from graph to graph, with a record of what it did."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from mobileprep.errors import MobileprepError
from mobileprep.ir.files import read_graph, write_graph
from mobileprep.ir.statistics import graph_statistics
from mobileprep.stages.base import Job, stage
from mobileprep.stages.interface import read_interface
from mobileprep.transforms._cautions import cautions
from mobileprep.transforms.base import Context
from mobileprep.transforms.chain import Step, run_chain


@stage("transform")
def run(job: Job) -> None:
    """Leaves ``graph.pb`` and ``step.json``."""
    told = job.parameters
    interface = read_interface(job)
    # Files are named as the recipe has them; here they are opened where they lie.
    files = {name: str(path) for name, path in job.roots.items() if name in told["options"]}
    options = {**told["options"], **files}
    step = Step(told["name"], options, told["ignore_errors"], job.roots.get("plugin"))
    context = Context(interface.inputs, interface.kept)
    graph = read_graph(job.inputs["graph"])
    told_before = cautions(graph, told["earlier"], step.name, step.options)
    try:
        graph, records = run_chain(graph, [step], context)
    except MobileprepError as error:
        # Where in the graph it went wrong goes into the message, for the place is the recipe's.
        message = f"{error.where}: {error.message}" if error.where else error.message
        raise type(error)(message, error.hint, job.place("transforms")) from error
    target = job.output("graph.pb")
    write_graph(target, graph)
    statistics = graph_statistics(graph, _size(target))
    data = {**dataclasses.asdict(records[0]), **dataclasses.asdict(statistics)}
    data["warnings"] = [*told_before, *data["warnings"]]
    job.write_json("step.json", data)


def _size(path: Path) -> int:
    return path.stat().st_size
