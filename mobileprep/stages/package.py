"""The package stage: the files that an app takes, and what they amount to."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
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
from mobileprep.stages.base import Job, stage
from mobileprep.stages.interface import read_interface
from mobileprep.transforms.base import Context

HEADER = "ops_to_register.h"
_BLOCK = 1 << 20


@stage("package")
def run(job: Job) -> None:
    """Leaves the model and what goes with it below ``files/``, and ``package.json``.

    Raises:
        AccuracyError: a budget of size is missed.
        UnsupportedError: an op is not in the TensorFlow release that the target links.
    """
    told = job.parameters
    graph = read_graph(job.inputs["graph"])
    warnings = _warnings(job, graph)
    model = job.output(f"files/{told['file']}")
    write_graph(model, graph, as_text=told["artifact"] == "text")
    size, compressed = model.stat().st_size, compressed_size(model)
    _check_budget(job, size, compressed)
    for release in told["registration"]:
        _write_registration(job, graph, release, _folder(told["registration"], release))
    statistics = dataclasses.asdict(graph_statistics(graph, size))
    ops = statistics.pop("ops")
    facts = {"file": told["file"], "compressed_bytes": compressed, **statistics}
    job.write_json("package.json", {"model": facts, "ops": ops, "warnings": warnings})


def _warnings(job: Job, graph: Graph) -> list[str]:
    """What the user should know of the graph that ships; told at once too."""
    interface = read_interface(job)
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


def _write_registration(job: Job, graph: Graph, release: str, folder: str) -> None:
    ops = ops_and_kernels([graph], release, functions=True)
    write_text(job.output(f"files/{folder}{HEADER}"), registration_header(ops, release))
    fragments = build_fragments(ops, release, job.parameters["platform"])
    for name, text in sorted(fragments.items()):
        write_text(job.output(f"files/{folder}{name}"), text)


def _folder(releases: Sequence[str], release: str) -> str:
    """With several releases, each has a folder: the headers must keep their name."""
    return "" if len(releases) == 1 else f"tensorflow-{release}/"


def _check_budget(job: Job, size: int, compressed: int) -> None:
    budget = job.parameters["budget"]
    missed = [
        f"{what} is {found:,} bytes, {found - budget[key]:,} over the budget of {budget[key]:,}"
        for key, what, found in (
            ("model_bytes", "the model", size),
            ("compressed_bytes", "the compressed model", compressed),
        )
        if budget[key] is not None and found > budget[key]
    ]
    if missed:
        hint = "quantize the weights, cut the graph further, or raise the budget"
        raise AccuracyError("; ".join(missed), hint, job.place("budget"))
