"""The transform stage: one step of a chain, from graph to graph, with a record of what it did."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from mobileprep.chains.cautions import cautions
from mobileprep.chains.chain import Step, run_chain
from mobileprep.errors import MobileprepError
from mobileprep.ir.files import read_graph, write_graph
from mobileprep.ir.statistics import graph_statistics
from mobileprep.plan.spec import PLUGIN_SLOT, file_slot
from mobileprep.stages.base import Job, stage
from mobileprep.stages.interface import read_interface
from mobileprep.transforms.base import Context


@stage("transform")
def run(job: Job) -> None:
    """Leaves ``graph.pb`` and ``step.json``."""
    told = job.parameters
    interface = read_interface(job)
    step = Step(told["name"], _options(job), told["ignore_errors"], job.roots.get(PLUGIN_SLOT))
    context = Context(interface.inputs, interface.kept)
    graph = read_graph(job.inputs["graph"])
    told_before = cautions(graph, told["earlier"], step.name, step.options)
    for caution in told_before:
        job.warn(caution)
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
    data["warnings"] = [_portable(job, text) for text in (*told_before, *data["warnings"])]
    data["skipped"] = {_portable(job, why): count for why, count in data["skipped"].items()}
    job.write_json("step.json", data)


def _options(job: Job) -> dict[str, Any]:
    """The step's parameters, with files as they lie instead of as the recipe names them."""

    def lying(item: object, slot: str) -> object:
        return str(job.roots[slot]) if slot in job.roots else item

    return {
        name: [lying(item, file_slot(name, i)) for i, item in enumerate(value)]
        if isinstance(value, list)
        else lying(value, file_slot(name, None))
        for name, value in job.parameters["options"].items()
    }


def _portable(job: Job, text: str) -> str:
    """A text for the record, with files as the recipe names them: no folder of this machine."""
    names = {str(file.path): file.name for files in job.files.values() for file in files}
    for name, value in job.parameters["options"].items():
        for i, item in enumerate(value) if isinstance(value, list) else [(None, value)]:
            root = job.roots.get(file_slot(name, i))
            if root is not None:
                names[str(root)] = item
    for path in sorted(names, key=len, reverse=True):
        text = text.replace(path, names[path])
    return text


def _size(path: Path) -> int:
    return path.stat().st_size
