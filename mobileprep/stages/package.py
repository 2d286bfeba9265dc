"""The package stage: the files that an app takes, and what they amount to."""

from __future__ import annotations

import dataclasses
import zlib
from pathlib import Path

from mobileprep.chains.norms_left import norms_left
from mobileprep.errors import AccuracyError
from mobileprep.formats.mapped_file import map_file
from mobileprep.fsio import write_text
from mobileprep.ir.files import read_graph, write_graph
from mobileprep.ir.graph import Graph
from mobileprep.ir.statistics import graph_statistics
from mobileprep.packaging.build_files import build_fragments
from mobileprep.packaging.selective_registration import ops_and_kernels, registration_header
from mobileprep.plan.records import Interface, ModelFacts, PackageRecord
from mobileprep.plan.stages import HEADER, PUBLISHED, PackageStage
from mobileprep.stages.base import Job, stage
from mobileprep.transforms.base import Context

_BLOCK = 1 << 20


@stage(PackageStage)
def run(job: Job[PackageStage]) -> None:
    """Leaves the model and what goes with it below ``files/``, and ``package.json``.

    Raises:
        AccuracyError: a budget of size is missed.
        UnsupportedError: an op is not in the TensorFlow release that the target links.
    """
    asked = job.asked
    graph = read_graph(job.path(asked.graph))
    warnings = _warnings(job, graph)
    model = job.output(asked.model)
    write_graph(model, graph, as_text=asked.artifact == "text")
    size, compressed = model.stat().st_size, compressed_size(model)
    _check_budget(job, size, compressed)
    for release in asked.registration:
        _write_registration(job, graph, release, asked.registration_folder(release))
    statistics = dataclasses.asdict(graph_statistics(graph, size))
    ops = statistics.pop("ops")
    facts = ModelFacts(asked.file, compressed, **statistics)
    job.write_record(asked.RECORD, PackageRecord(facts, ops, tuple(warnings)))


def _warnings(job: Job[PackageStage], graph: Graph) -> list[str]:
    """What the user should know of the graph that ships; told at once too."""
    interface = job.record(Interface, job.asked.interface)
    left = norms_left(graph, Context(interface.inputs, interface.kept))
    warnings = [left] if left else []
    for text in warnings:
        job.warn(f"{job.place('transforms')}: {text}")
    return warnings


def compressed_size(path: Path) -> int:
    """The bytes of a file under deflate at level 9, as app packages store it."""
    data = map_file(path)
    packer = zlib.compressobj(9)
    size = sum(
        len(packer.compress(data[start : start + _BLOCK])) for start in range(0, len(data), _BLOCK)
    )
    return size + len(packer.flush())


def _write_registration(job: Job[PackageStage], graph: Graph, release: str, folder: str) -> None:
    ops = ops_and_kernels([graph], release, functions=True)
    write_text(job.output(f"{PUBLISHED}{folder}{HEADER}"), registration_header(ops, release))
    fragments = build_fragments(ops, release, job.asked.platform)
    for name, text in sorted(fragments.items()):
        write_text(job.output(f"{PUBLISHED}{folder}{name}"), text)


def _check_budget(job: Job[PackageStage], size: int, compressed: int) -> None:
    budget = job.asked.budget
    missed = [
        f"{what} is {found:,} bytes, {found - limit:,} over the budget of {limit:,}"
        for limit, what, found in (
            (budget.model_bytes, "the model", size),
            (budget.compressed_bytes, "the compressed model", compressed),
        )
        if limit is not None and found > limit
    ]
    if missed:
        hint = "quantize the weights, cut the graph further, or raise the budget"
        raise AccuracyError("; ".join(missed), hint, job.place("budget"))
