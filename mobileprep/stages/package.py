"""The package stage: the files that an app takes, and what they amount to."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from mobileprep.chains.norms_left import norms_left
from mobileprep.formats.encrypted_header import OVERHEAD
from mobileprep.freezing.interface import check_inputs_suffice, unused_inputs
from mobileprep.fsio import write_text
from mobileprep.ir.channel_statistics import without_statistics
from mobileprep.ir.files import write_graph
from mobileprep.ir.graph import Graph
from mobileprep.ir.statistics import graph_statistics
from mobileprep.opdefs.definitions import TF115
from mobileprep.packaging.app_files import app_files
from mobileprep.packaging.build_files import build_fragments
from mobileprep.packaging.kernel_code import kernel_bytes
from mobileprep.packaging.selective_registration import ops_and_kernels, registration_header
from mobileprep.packaging.target_check import target_gaps
from mobileprep.plan.records import Interface, KernelsRecord, ModelFacts, PackageRecord
from mobileprep.plan.running_records import BEFORE_CONVERSION
from mobileprep.plan.spec import PUBLISHED
from mobileprep.plan.stages import HEADER, PackageStage
from mobileprep.stages.base import Job, stage
from mobileprep.transforms.base import Context

if TYPE_CHECKING:
    from mobileprep.packaging.memmapped import Conversion


@stage(PackageStage)
def run(job: Job[PackageStage]) -> None:
    """Leaves the model and what goes with it below ``files/``, and ``package.json``.

    Raises:
        UnsupportedError: an op is not in the TensorFlow release that the target links.
        InvalidGraphError: an output needs a placeholder that is not an input.
    """
    asked = job.asked
    graph = without_statistics(job.graph(asked.graph))
    warnings = _warnings(job, graph)
    shipped, size = _leave_model(job, graph, warnings)
    size += OVERHEAD if asked.encrypted else 0
    kernels = []
    for release in asked.registration:
        kernels.append(_write_registration(job, shipped, release))
        warnings += _gaps(job, shipped, release)
    _write_app_files(job)
    statistics = dataclasses.asdict(graph_statistics(graph, size))
    ops = statistics.pop("ops")
    basis = f"counted on {BEFORE_CONVERSION}" if asked.artifact == "tflite" else ""
    facts = ModelFacts(asked.encrypted or asked.file, **statistics, basis=basis)
    job.write_record(asked.RECORD, PackageRecord(facts, ops, tuple(warnings), tuple(kernels)))


def _leave_model(job: Job[PackageStage], graph: Graph, warnings: list[str]) -> tuple[Graph, int]:
    """Leave the model file; the graph that the app loads then, and the file's length in bytes.

    What the user should know of it joins ``warnings``.
    """
    if job.asked.artifact == "frozen":
        return graph, job.leave_graph(job.asked.model, graph)
    if job.asked.artifact == "memmapped":
        from mobileprep.packaging.memmapped import PAGE_SIZE, convert  # few targets take it

        done = convert(graph, PAGE_SIZE, quantized=True, safe=True)
        warnings += _kept(job, done)
        return done.model.graph, job.leave_memmapped(job.asked.model, done.model)
    path = job.output(job.asked.model)
    if job.asked.artifact == "tflite":
        # Slow to import, and few targets take it.
        from mobileprep.stages.lite_package import leave_tflite

        return graph, leave_tflite(job, graph, path, warnings)
    write_graph(path, graph, as_text=True)
    return graph, path.stat().st_size


def _warnings(job: Job[PackageStage], graph: Graph) -> list[str]:
    """What the user should know of the graph that ships; told at once too."""
    interface = job.record(Interface, job.asked.interface)
    where = job.place("inputs")
    check_inputs_suffice(graph, interface.inputs, interface.outputs, where)
    unused = [
        f"the prepared model does not use the input {name!r}; if the app feeds it, the model "
        "ignores it"
        for name in unused_inputs(graph, interface.inputs, interface.outputs)
    ]
    for text in unused:
        job.warn(f"{where}: {text}")
    left = norms_left(graph, Context(interface.inputs, interface.kept))
    if left:
        job.warn(f"{job.place('transforms')}: {left}")
    return [*unused, left] if left else unused


def _kept(job: Job[PackageStage], done: Conversion) -> list[str]:
    """Why constants were not mapped, told at once too."""
    if not done.written:
        return []
    name, writer = done.written[0]
    text = (
        f"{len(done.written)} large constants are not mapped, such as {name!r}: the op of "
        f"{writer!r} may put its result into their memory; fold_constants mostly mends that"
    )
    job.warn(f"{job.place('artifact')}: {text}")
    return [text]


def _gaps(job: Job[PackageStage], graph: Graph, release: str) -> list[str]:
    """What a release lacks for the graph, though the app builds with its header; told at once."""
    found = target_gaps(graph, release, job.asked.platform, selective=True)
    by_mend: dict[str, list[str]] = {}
    for gap in found:
        by_mend.setdefault(gap.mend, []).append(gap.message)
    texts = [_sentence(messages, mend) for mend, messages in by_mend.items()]
    for text in texts:
        job.warn(f"{job.place('registration')}: {text}")
    return texts


def _sentence(messages: list[str], mend: str) -> str:
    """Gaps that have a mend in common."""
    more = f" and {len(messages) - 1} more of the kind" if len(messages) > 1 else ""
    return f"{messages[0]}{more}: {mend}"


def _write_app_files(job: Job[PackageStage]) -> None:
    """Leave what the app's own build takes; other releases have no libraries for apps."""
    asked = job.asked
    if TF115 not in asked.registration:
        return
    model, encrypted = asked.encrypted or asked.file, bool(asked.encrypted)
    files = app_files(asked.platform, asked.abis, asked.name, model, encrypted=encrypted)
    for name, text in sorted(files.items()):
        write_text(job.output(f"{PUBLISHED}{name}"), text)


def _write_registration(job: Job[PackageStage], graph: Graph, release: str) -> KernelsRecord:
    """Leave the header for a release and what goes with it; what it registers."""
    folder = job.asked.registration_folder(release)
    ops = ops_and_kernels([graph], release, functions=True)
    write_text(job.output(f"{PUBLISHED}{folder}{HEADER}"), registration_header(ops, release))
    fragments = build_fragments(ops, release, job.asked.platform, job.asked.abis)
    for name, text in sorted(fragments.items()):
        write_text(job.output(f"{PUBLISHED}{folder}{name}"), text)
    count = len({pair for pair in ops if pair.kernel is not None})
    return KernelsRecord(release, count, kernel_bytes(ops, release))
