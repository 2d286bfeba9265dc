"""Write the .tflite file of a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from msgspec.structs import replace

from mobileprep.building.plan.spec import PUBLISHED
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.exceptions.spec import (
    ExceptionsRecord,
    ExceptionStage,
    nodes_by_mode,
)
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.package.spec import LiteEnd, LiteInterface, PackageStage
from mobileprep.building.stages.page.run import app_ends, images_of
from mobileprep.building.stages.running import placed, with_assets
from mobileprep.core.files import write_bytes, write_text
from mobileprep.data.calibration.layers import rule_text
from mobileprep.data.file_samples import class_names
from mobileprep.formats.dtypes import DType
from mobileprep.formats.range_file import read_range_file
from mobileprep.formats.tflite.metadata import ENTRY, description_bytes, with_files
from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.formats.tflite.streaming import STREAMING, Streaming, decode_streaming
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.litert.assemble import RUNTIME
from mobileprep.litert.convert import INTEGERS, MODES, Mode, converted
from mobileprep.litert.flex import flex_of
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.quantizing.kernels import Integers
from mobileprep.recipe.validation_settings import Quantize
from mobileprep.targets.integration.render import AppTensor
from mobileprep.targets.litert.build import LABELS, LiteFile, LiteOperator, described, lite_files
from mobileprep.transforms.quantize_nodes import WeightSettings


def leave_tflite(
    job: Job[PackageStage], graph: Graph, path: Path, warnings: list[str]
) -> tuple[int, LiteInterface]:
    """Write a .tflite file, and return its size in bytes and its inputs and outputs.

    Appends to ``warnings`` the libraries that the app has to link, and the operators that stay in
    float although others compute in integers.
    """
    interface = job.record(Interface, job.asked.interface)
    where = job.place("artifact")
    assert job.asked.assets is not None
    notes: list[str] = []
    rules: Sequence[str] = ()
    if job.asked.exceptions is not None:
        chosen = job.record(ExceptionsRecord, job.asked.exceptions)
        rules = rules_of(nodes_by_mode(chosen.exceptions))
    with with_assets(graph, job.path(job.asked.assets)) as whole:
        model = record_of(job, whole, interface, rules, notes.append)
    for note in notes:
        job.warn(f"{job.place('quantize')}: {note}")
    warnings += notes
    entry = dict(model.metadata).get(STREAMING)
    streaming = None if entry is None else decode_streaming(bytes(entry), str(path))
    flexible = flex_of(model)
    if flexible:
        warnings.append(f"the app has to link the Flex delegate, for {', '.join(flexible)}")
        job.warn(f"{where}: {warnings[-1]}")
    with placed(job.place("validation")):
        content = _describe(job, graph, interface, model, streaming)
    write_bytes(path, content)
    _leave_build_files(job, model, has_flex=bool(flexible))
    return len(content), _interface(model, streaming)


def _interface(model: ModelRecord, streaming: Streaming | None) -> LiteInterface:
    """Return the inputs and outputs of a file."""
    (signature,) = model.signatures
    tensors = model.subgraphs[0].tensors

    def ends(named: Sequence[tuple[str, int]]) -> tuple[LiteEnd, ...]:
        return tuple(
            LiteEnd(name, tensors[i].type.lower(), tuple(tensors[i].signature or tensors[i].shape))
            for name, i in named
        )

    return LiteInterface(ends(signature.inputs), ends(signature.outputs), streaming)


def record_of(
    job: Job[PackageStage] | Job[ExceptionStage],
    graph: Graph,
    interface: Interface,
    rules: Sequence[str],
    tell: Callable[[str], None],
) -> ModelRecord:
    """Convert the graph as the recipe says.

    Args:
        job: job of the stage.
        graph: the graph after all transforms.
        interface: inputs and outputs.
        rules: rules for ``quantize: auto``; the recipe's rules take precedence.
        tell: see ``converted``.
    """
    settings = job.asked
    mode = mode_of(settings.quantize)
    path = None if settings.ranges is None else job.path(settings.ranges)
    return converted(
        graph,
        [CutInput(name) for name in interface.inputs],
        interface.outputs,
        mode=mode,
        integers=integers_of(settings.quantize, path, rules) if mode in INTEGERS else None,
        rules=tuple(rule.text for rule in settings.quantize.rules),
        weights=weights_of(settings.quantize),
        flex=isinstance(settings, PackageStage) and settings.flex,
        min_runtime=settings.min_runtime,
        streaming=settings.streaming if isinstance(settings, PackageStage) else None,
        where=job.place("artifact"),
        tell=tell,
    )


def rules_of(modes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return rules for the nodes of each mode, in the syntax of the converter."""
    return [rule_text(mode, names) for mode, names in modes.items()]


def mode_of(quantize: Quantize) -> Mode:
    """Return the mode of the converter; ``auto`` is int8 with exceptions."""
    if quantize.mode == "auto":
        return "int8"
    return cast(Mode, quantize.mode) if quantize.mode in MODES else "float"


def weights_of(quantize: Quantize) -> WeightSettings | None:
    """Return how the recipe stores weights in `weights` and `int4`; None for the default."""
    if quantize.mode == "int4" and quantize.block_size is not None:
        return WeightSettings(4, block_size=quantize.block_size)
    if quantize.bits is None and quantize.granularity is None:
        return None
    return WeightSettings(quantize.bits or 8, quantize.granularity)


def integers_of(quantize: Quantize, path: Path | None, rules: Sequence[str] = ()) -> Integers:
    """Return the integer quantization settings of a recipe.

    Args:
        quantize: the settings.
        path: the file with the measured ranges, if there are any.
        rules: rules for ``quantize: auto``; the recipe's rules take precedence.
    """
    kind = INTEGERS[mode_of(quantize)]
    measured = {} if path is None else read_range_file(path).tensors
    eight, sixteen = (
        {name: one.ends(is_sixteen=is_sixteen) for name, one in measured.items()}
        for is_sixteen in (False, True)
    )
    return Integers(
        kind,
        sixteen if kind is DType.INT16 else eight,
        sixteen,
        is_trained=quantize.ranges == "trained",
        rules=(*rules, *(rule.text for rule in quantize.rules)),
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
    job: Job[PackageStage],
    graph: Graph,
    interface: Interface,
    model: ModelRecord,
    streaming: Streaming | None,
) -> bytes:
    """Serialize the file, with its metadata and the appended file of classes."""
    settings = job.asked
    inputs, outputs = app_ends(job, graph, interface, streaming)
    states = () if streaming is None else streaming.states
    inputs += tuple(AppTensor(s.input, DType.FLOAT) for s in states)
    outputs += tuple(AppTensor(s.output, DType.FLOAT) for s in states)
    names = [] if settings.classes is None else class_names(settings.classes.root)
    table = described(settings.name, inputs, outputs, images_of(settings, inputs), len(names))
    entry = (ENTRY, description_bytes(table))
    whole = model_bytes(replace(model, metadata=(*model.metadata, entry)), settings.model)
    return with_files(whole, {LABELS: "".join(f"{n}\n" for n in names)} if names else {})
