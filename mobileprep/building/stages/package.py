"""The package stage: the files that an app takes, and what they amount to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from mobileprep.building.plan.records import (
    BEFORE_CONVERSION,
    Interface,
    KernelsRecord,
    ModelFacts,
    PackageRecord,
)
from mobileprep.building.plan.spec import PUBLISHED
from mobileprep.building.plan.stages import HEADER, OP_SOURCES, PackageStage
from mobileprep.building.stages.base import Job, stage
from mobileprep.core.files import write_bytes, write_text
from mobileprep.errors import UnsupportedError, named
from mobileprep.formats.memmapped import OVERHEAD
from mobileprep.freezing.fit import check_inputs_suffice, unused_inputs
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.opdefs.definitions import TF115
from mobileprep.graph.opdefs.source_files import is_kernel_file
from mobileprep.graph.statistics import graph_statistics, without_statistics
from mobileprep.ops.modules import family_of
from mobileprep.targets.app_files import app_files
from mobileprep.targets.build_files import KERNELS, build_fragments
from mobileprep.targets.kernel_code import kernel_bytes
from mobileprep.targets.op_lists import DEFAULT_OPS, OpKernel
from mobileprep.targets.selective_registration import ops_and_kernels, registration_header
from mobileprep.targets.target_check import AppBuild, check_loads, ops_of
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import norms_left

if TYPE_CHECKING:
    from mobileprep.targets.memmapped import Conversion


@stage(PackageStage)
def run(job: Job[PackageStage]) -> None:
    """Leaves the model and what goes with it below ``files/``, and ``package.json``.

    Raises:
        UnsupportedError: a TensorFlow release of the target cannot load or run the model.
        InvalidGraphError: an output needs a placeholder that is not an input.
    """
    asked = job.asked
    graph = without_statistics(job.graph(asked.graph))
    warnings = _warnings(job, graph)
    shipped, size = _leave_model(job, graph, warnings)
    size += OVERHEAD if asked.encrypted else 0
    warnings += _check_loads(job, shipped)
    _copy_op_sources(job)
    kernels = [_write_registration(job, shipped, release) for release in asked.registration]
    _write_app_files(job)
    statistics = structs.asdict(graph_statistics(graph, size))
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
        from mobileprep.targets.memmapped import PAGE_SIZE, convert  # few targets take it

        done = convert(graph, PAGE_SIZE, quantized=True, safe=True)
        warnings += _kept(job, done)
        return done.model.graph, job.leave_memmapped(job.asked.model, done.model)
    path = job.output(job.asked.model)
    if job.asked.artifact == "tflite":
        # Slow to import, and few targets take it.
        from mobileprep.building.stages.lite_package import leave_tflite

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


def _check_loads(job: Job[PackageStage], graph: Graph) -> list[str]:
    """Make sure that the target's TensorFlow loads a graph; return warnings on what is allowed."""
    asked = job.asked
    if not asked.registration:
        return []
    build = AppBuild(asked.registration, asked.platform, asked.allow, asked.ops)
    try:
        check_loads(graph, build)
    except UnsupportedError as error:
        raise error.at(job.place("registration")) from error
    warnings = list(build.accepted(graph))
    own = sorted(ops_of(graph) & asked.ops.keys())
    if own:
        warnings.append(f"the app has to register {named(own)}, which no TensorFlow library has")
    unknown = [op for op in own if not family_of(op)]
    if unknown:
        warnings.append(
            f"the model was not run: mobileprep has no kernel for {named(unknown)}, so `check`, "
            "`validation`, and `calibration` are not possible"
        )
    for text in warnings:
        job.warn(f"{job.place('registration')}: {text}")
    return warnings


def _copy_op_sources(job: Job[PackageStage]) -> None:
    """Copy the C++ files of the app's own ops next to the header."""
    for files in job.asked.op_sources.values():
        name = files.root.name
        if any(is_kernel_file(name, release) for release in job.asked.registration):
            message = f"TensorFlow has a file `{name}` too, in {KERNELS}"
            raise UnsupportedError(message, f"rename {files.name}", job.place("ops"))
        write_bytes(job.output(f"{PUBLISHED}{OP_SOURCES}{name}"), files.root.read_bytes())


def _write_app_files(job: Job[PackageStage]) -> None:
    """Leave what the app's own build takes; other releases have no libraries for apps."""
    asked = job.asked
    if TF115 not in asked.registration:
        return
    model, encrypted = asked.encrypted or asked.file, bool(asked.encrypted)
    files = app_files(
        asked.platform, asked.abis, asked.name, model, encrypted=encrypted, custom_ops=asked.ops
    )
    for name, text in sorted(files.items()):
        write_text(job.output(f"{PUBLISHED}{name}"), text)


def _write_registration(job: Job[PackageStage], graph: Graph, release: str) -> KernelsRecord:
    """Leave the header for a release and what goes with it; what it registers."""
    asked, folder = job.asked, job.asked.registration_folder(release)
    custom = [OpKernel(op, kernel) for op, kernels in asked.ops.items() for kernel in kernels]
    ops = ops_and_kernels(
        [graph], release, default_ops=(*DEFAULT_OPS, *custom), functions=True, allow=asked.allow
    )
    write_text(job.output(f"{PUBLISHED}{folder}{HEADER}"), registration_header(ops, release))
    sources = [files.root.name for files in asked.op_sources.values()]
    fragments = build_fragments(
        ops, release, asked.platform, asked.abis, custom_ops=asked.ops, custom_sources=sources
    )
    for name, text in sorted(fragments.items()):
        write_text(job.output(f"{PUBLISHED}{folder}{name}"), text)
    count = len({pair for pair in ops if pair.kernel is not None})
    return KernelsRecord(release, count, kernel_bytes(ops, release))
