"""Run one step of a chain of transforms."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from mobileprep.building.plan.spec import PAGE, file_slot
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.freeze.run import named_checkpoint
from mobileprep.building.stages.freeze.spec import GRAPH, Interface
from mobileprep.building.stages.page.run import write_graph_page
from mobileprep.building.stages.running import placed_step
from mobileprep.building.stages.transform.spec import TransformRecord, TransformStage
from mobileprep.graph.graph import Graph
from mobileprep.graph.statistics import graph_statistics
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import ChainStep, StepRecord, cautions, run_chain


def run(job: Job[TransformStage]) -> None:
    """Write ``graph.pb``, ``step.json``, and ``page.json``."""
    settings = job.asked
    interface = job.record(Interface, settings.interface)
    plugin = None if settings.plugin is None else settings.plugin.root
    options = options_of(settings)
    if settings.ranges is not None:
        options["range_file"] = str(job.path(settings.ranges))
    step = ChainStep(settings.transform, options, settings.ignore_errors, plugin)
    context = Context(interface.inputs, interface.retained, offload=job.offload)
    before = job.graph(settings.graph)
    warnings = list(cautions(before, settings.earlier, step.name, step.options))
    for caution in warnings:
        job.warn(caution)
    with placed_step(job):
        graph, (done,) = run_chain(before, [step], context)
    messages = tuple(_portable(settings, text) for text in (*warnings, *done.warnings))
    skipped = {_portable(settings, why): count for why, count in done.skipped.items()}
    done = structs.replace(done, warnings=messages, skipped=skipped)
    write_graph_page(job.output(PAGE), graph, before)
    job.write_record(settings.RECORD, step_record(done, graph, job.leave_graph(GRAPH, graph)))


def step_record(done: StepRecord, graph: Graph, size: int) -> TransformRecord:
    """Create the record of a step."""
    statistics = graph_statistics(graph, size)
    return TransformRecord(**structs.asdict(done), **structs.asdict(statistics))


def options_of(settings: TransformStage) -> dict[str, Any]:
    """Return the step's parameters, with file names replaced by their paths."""

    def lying(item: object, slot: str) -> object:
        named = settings.named.get(slot)
        if named is None:
            return item
        return str(named_checkpoint(named) if named.is_checkpoint else named.root)

    return {
        name: tuple(lying(item, file_slot(name, i)) for i, item in enumerate(value))
        if isinstance(value, tuple)
        else lying(value, file_slot(name, None))
        for name, value in settings.options.items()
    }


def _portable(settings: TransformStage, text: str) -> str:
    """Replace the paths in a message with the names in the recipe."""
    names: dict[str, str] = {}
    plugins = () if settings.plugin is None else (settings.plugin,)
    for files in (*plugins, *settings.named.values()):
        names |= {str(file.path): file.name for file in files.members}
        names[str(files.root)] = files.name
    for path in sorted(names, key=len, reverse=True):
        text = text.replace(path, names[path])
    return text
