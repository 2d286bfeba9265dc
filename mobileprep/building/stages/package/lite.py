"""Write the .tflite file of a target."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from msgspec.structs import replace

from mobileprep.building.plan.spec import PUBLISHED
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.package.spec import PackageStage
from mobileprep.building.stages.page.run import app_ends, images_of
from mobileprep.building.stages.running import placed, with_assets
from mobileprep.core.files import write_bytes, write_text
from mobileprep.data.file_samples import class_names
from mobileprep.formats.dtypes import DType
from mobileprep.formats.range_file import read_range_file
from mobileprep.formats.tflite.metadata import ENTRY, description_bytes, with_files
from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.litert.assemble import RUNTIME
from mobileprep.litert.convert import INTEGERS, MODES, Mode, converted
from mobileprep.litert.flex import flex_of
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.quantizing.kernels import Integers
from mobileprep.targets.litert.build import LABELS, LiteFile, LiteOperator, described, lite_files


def leave_tflite(job: Job[PackageStage], graph: Graph, path: Path, warnings: list[str]) -> int:
    """Write a .tflite file, and return its size in bytes.

    Appends to ``warnings`` the libraries that the app has to link, and the operators that stay in
    float although others compute in integers.
    """
    interface = job.record(Interface, job.asked.interface)
    where = job.place("artifact")
    assert job.asked.assets is not None
    with with_assets(graph, job.path(job.asked.assets)) as whole:
        model = _convert(job, whole, interface, warnings)
    flexible = flex_of(model)
    if flexible:
        warnings.append(f"the app has to link the Flex delegate, for {', '.join(flexible)}")
        job.warn(f"{where}: {warnings[-1]}")
    with placed(job.place("validation")):
        content = _describe(job, graph, interface, model)
    write_bytes(path, content)
    _leave_build_files(job, model, has_flex=bool(flexible))
    return len(content)


def _convert(
    job: Job[PackageStage], graph: Graph, interface: Interface, warnings: list[str]
) -> ModelRecord:
    settings, notes = job.asked, list[str]()
    mode = cast(Mode, settings.quantize.mode) if settings.quantize.mode in MODES else "float"
    model = converted(
        graph,
        [CutInput(name) for name in interface.inputs],
        interface.outputs,
        mode=mode,
        integers=_integers(job) if mode in INTEGERS else None,
        flex=settings.flex,
        min_runtime=settings.min_runtime,
        where=job.place("artifact"),
        tell=notes.append,
    )
    for note in notes:
        job.warn(f"{job.place('quantize')}: {note}")
    warnings += notes
    return model


def _integers(job: Job[PackageStage]) -> Integers:
    """Return the integer quantization settings of the recipe."""
    quantize = job.asked.quantize
    kind = INTEGERS[cast(Mode, quantize.mode)]
    ranges = {}
    if job.asked.ranges is not None:
        measured = read_range_file(job.path(job.asked.ranges)).tensors
        is_sixteen = kind is DType.INT16
        ranges = {name: one.ends(is_sixteen=is_sixteen) for name, one in measured.items()}
    return Integers(
        kind,
        ranges,
        is_trained=quantize.ranges == "trained",
        rules=tuple(rule.text for rule in quantize.rules),
        input_type=quantize.inference_input_type,
        output_type=quantize.inference_output_type,
    )


def _leave_build_files(job: Job[PackageStage], model: ModelRecord, *, has_flex: bool) -> None:
    """Write the files for the build of the app."""
    settings = job.asked
    versions: dict[tuple[str, bool], int] = {}
    for operator in (op for part in model.subgraphs for op in part.operators):
        code = operator.code
        key = (code.custom or code.builtin, bool(code.custom))
        versions[key] = max(versions.get(key, 1), code.version)
    operators = tuple(LiteOperator(n, v, custom) for (n, custom), v in versions.items())
    runtime = dict(model.metadata)[RUNTIME].rstrip(b"\0").decode()
    file = LiteFile(settings.name, settings.file, operators, runtime, has_flex, settings.encrypted)
    for name, text in sorted(lite_files(settings.platform, settings.abis, file).items()):
        write_text(job.output(f"{PUBLISHED}{name}"), text)


def _describe(
    job: Job[PackageStage], graph: Graph, interface: Interface, model: ModelRecord
) -> bytes:
    """Serialize the file, with its metadata and the appended file of classes."""
    settings = job.asked
    inputs, outputs = app_ends(job, graph, interface)
    names = [] if settings.classes is None else class_names(settings.classes.root)
    table = described(settings.name, inputs, outputs, images_of(settings, inputs), len(names))
    entry = (ENTRY, description_bytes(table))
    whole = model_bytes(replace(model, metadata=(*model.metadata, entry)), settings.model)
    return with_files(whole, {LABELS: "".join(f"{n}\n" for n in names)} if names else {})
