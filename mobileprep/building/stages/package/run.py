"""Write the files of a target: model, headers, and build files."""

from __future__ import annotations

import itertools
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import structs

from mobileprep.building.plan.engines import BEFORE_CONVERSION
from mobileprep.building.plan.fingerprints import LEVEL
from mobileprep.building.plan.spec import PUBLISHED
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.package.spec import (
    HEADER,
    OP_SOURCES,
    CompressRecord,
    CompressStage,
    EncryptStage,
    KernelsRecord,
    LiteInterface,
    ModelFacts,
    PackageRecord,
    PackageStage,
)
from mobileprep.core.files import write_bytes, write_text
from mobileprep.core.keys import key_from_environment
from mobileprep.core.parallel import cores
from mobileprep.errors import UnsupportedError, named
from mobileprep.formats.memmapped import OVERHEAD
from mobileprep.freezing.fit import check_inputs_suffice, unused_inputs
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.opdefs.definitions import TF115
from mobileprep.graph.opdefs.kernel_classes import is_kernel_file
from mobileprep.graph.serde import graph_to_bytes, graph_to_pieces, raw_chunks
from mobileprep.graph.statistics import graph_statistics, without_statistics
from mobileprep.ops.registry import family_of
from mobileprep.targets.app_files import app_files
from mobileprep.targets.build_files import KERNELS, build_fragments
from mobileprep.targets.memmapped import encrypt
from mobileprep.targets.op_lists import DEFAULT_OPS, OpKernel
from mobileprep.targets.selective_registration import (
    kernel_bytes,
    ops_and_kernels,
    registration_header,
)
from mobileprep.targets.target_check import AppBuild, check_loads, ops_of
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import norms_left

if TYPE_CHECKING:
    from mobileprep.targets.memmapped import MemmapResult


def run_package(job: Job[PackageStage]) -> None:
    """Write the model and its accompanying files below ``files/``, and ``package.json``.

    Raises:
        UnsupportedError: a TensorFlow release of the target cannot load or run the model.
        InvalidGraphError: an output needs a placeholder that is not an input.
    """
    settings = job.asked
    graph = without_statistics(job.graph(settings.graph))
    warnings = _warnings(job, graph)
    shipped, size, lite = _leave_model(job, graph, warnings)
    size += OVERHEAD if settings.encrypted else 0
    warnings += _check_loads(job, shipped)
    _copy_op_sources(job)
    kernels = [_write_registration(job, shipped, release) for release in settings.registration]
    _write_app_files(job)
    statistics = structs.asdict(graph_statistics(graph, size))
    ops = statistics.pop("ops")
    basis = f"counted on {BEFORE_CONVERSION}" if settings.artifact == "tflite" else ""
    facts = ModelFacts(settings.encrypted or settings.file, **statistics, basis=basis)
    record = PackageRecord(facts, ops, tuple(warnings), tuple(kernels), lite)
    job.write_record(settings.RECORD, record)


def _leave_model(
    job: Job[PackageStage], graph: Graph, warnings: list[str]
) -> tuple[Graph, int, LiteInterface | None]:
    """Write the model file, and return the graph that the app loads and the size in bytes.

    For a .tflite file, also return its inputs and outputs.

    Appends warnings about the model to ``warnings``.
    """
    if job.asked.artifact == "frozen":
        return graph, job.leave_graph(job.asked.model, graph), None
    if job.asked.artifact == "memmapped":
        from mobileprep.targets.memmapped import PAGE_SIZE, convert  # few targets need it

        done = convert(graph, PAGE_SIZE, quantized=True, safe=True)
        warnings += _unmapped(job, done)
        return done.model.graph, job.leave_memmapped(job.asked.model, done.model), None
    path = job.output(job.asked.model)
    if job.asked.artifact == "tflite":
        # Slow to import, and few targets need it.
        from mobileprep.building.stages.package.lite import leave_tflite

        return graph, *leave_tflite(job, graph, path, warnings)
    write_graph(path, graph, as_text=True)
    return graph, path.stat().st_size, None


def _warnings(job: Job[PackageStage], graph: Graph) -> list[str]:
    """Return warnings about the published graph, and report them immediately."""
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
    norms = norms_left(graph, Context(interface.inputs, interface.retained))
    if norms:
        job.warn(f"{job.place('transforms')}: {norms}")
    return [*unused, norms] if norms else unused


def _unmapped(job: Job[PackageStage], done: MemmapResult) -> list[str]:
    """Return a warning about constants that are not mapped, and report it immediately."""
    if not done.written:
        return []
    name, writer = done.written[0]
    text = (
        f"{len(done.written)} large constants are not mapped, such as {name!r}: the op of "
        f"{writer!r} may write its result into their memory; fold_constants usually avoids this"
    )
    job.warn(f"{job.place('artifact')}: {text}")
    return [text]


def _check_loads(job: Job[PackageStage], graph: Graph) -> list[str]:
    """Check that the target's TensorFlow can load a graph. Return warnings about allowed ops."""
    settings = job.asked
    if not settings.registration:
        return []
    build = AppBuild(settings.registration, settings.platform, settings.allow, settings.ops)
    try:
        check_loads(graph, build)
    except UnsupportedError as error:
        raise error.at(job.place("registration")) from error
    warnings = list(build.accepted(graph))
    own = sorted(ops_of(graph) & settings.ops.keys())
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
    """Write the files for the build of the app. Only TensorFlow 1.15 has libraries for apps."""
    settings = job.asked
    if TF115 not in settings.registration:
        return
    model, encrypted = settings.encrypted or settings.file, bool(settings.encrypted)
    files = app_files(
        settings.platform,
        settings.abis,
        settings.name,
        model,
        encrypted=encrypted,
        custom_ops=settings.ops,
    )
    for name, text in sorted(files.items()):
        write_text(job.output(f"{PUBLISHED}{name}"), text)


def _write_registration(job: Job[PackageStage], graph: Graph, release: str) -> KernelsRecord:
    """Write the header and build files for a release, and return its record."""
    settings, folder = job.asked, job.asked.registration_folder(release)
    custom = [OpKernel(op, kernel) for op, kernels in settings.ops.items() for kernel in kernels]
    ops = ops_and_kernels(
        [graph], release, default_ops=(*DEFAULT_OPS, *custom), functions=True, allow=settings.allow
    )
    write_text(job.output(f"{PUBLISHED}{folder}{HEADER}"), registration_header(ops, release))
    sources = [files.root.name for files in settings.op_sources.values()]
    fragments = build_fragments(
        ops,
        release,
        settings.platform,
        settings.abis,
        custom_ops=settings.ops,
        custom_sources=sources,
    )
    for name, text in sorted(fragments.items()):
        write_text(job.output(f"{PUBLISHED}{folder}{name}"), text)
    count = len({pair for pair in ops if pair.kernel is not None})
    return KernelsRecord(release, count, kernel_bytes(ops, release))


_BLOCK: Final = 4 << 20


# Input size of a zlib call, small enough for the processor's cache.
_SLICE: Final = 1 << 20


# Number of bytes of a block that decide whether zlib searches for repetitions.
_PROBE: Final = 1 << 17


_MIN_GAIN: Final = 0.01


# Deflate without the header and checksum of the zlib format.
_RAW: Final = -15


# The header of the zlib format, an empty last block, and the checksum.
FRAME: Final = 2 + 2 + 4


def run_compress(job: Job[CompressStage]) -> None:
    """Write ``compress.json``."""
    settings = job.asked
    size = compressed_size(_model(job))
    job.write_record(settings.RECORD, CompressRecord(size, settings.compressor))


def _model(job: Job[CompressStage]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of the model file, as written by the package stage."""
    settings = job.asked
    if settings.graph is None:
        assert settings.model is not None
        return job.data(settings.model)
    return raw_chunks(graph_to_pieces(without_statistics(job.graph(settings.graph))))


def compressed_size(pieces: Iterable[bytes | memoryview]) -> int:
    """Return the size in bytes of a file in the zlib format.

    Blocks are compressed in parallel, as in ``pigz --independent``. Joined, they are one stream
    that is about 0.001 % larger than without blocks.
    """
    blocks = _cut(pieces, _BLOCK)
    first = next(blocks, [])
    if sum(map(len, first)) < _BLOCK:
        return FRAME + (_deflated(first) if first else 0)
    workers = cores()
    size = FRAME
    waiting: deque[Future[int]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for block in itertools.chain([first], blocks):
            waiting.append(pool.submit(_deflated, block))
            # Enough to keep all processors busy, and few enough to limit memory.
            if len(waiting) > 2 * workers:
                size += waiting.popleft().result()
        return size + sum(future.result() for future in waiting)


def _deflated(block: Sequence[memoryview]) -> int:
    slices = [np.concatenate([np.frombuffer(p, np.uint8) for p in x]) for x in _cut(block, _SLICE)]
    packer = _packer(_strategy(slices))
    size = sum(len(packer.compress(part.data)) for part in slices)
    return size + len(packer.flush(zlib.Z_FULL_FLUSH))


def _strategy(slices: Sequence[np.ndarray[Any, Any]]) -> int:
    """Choose the zlib strategy. Dense weights gain nothing from the slow search for repetitions."""
    middle = slices[len(slices) // 2][:_PROBE]
    sizes = []
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY):
        packer = _packer(strategy)
        sizes.append(len(packer.compress(middle.data)) + len(packer.flush()))
    repeats = sizes[0] < sizes[1] * (1 - _MIN_GAIN)
    return zlib.Z_DEFAULT_STRATEGY if repeats else zlib.Z_HUFFMAN_ONLY


def _packer(strategy: int) -> zlib._Compress:
    return zlib.compressobj(LEVEL, wbits=_RAW, memLevel=9, strategy=strategy)


def _cut(pieces: Iterable[bytes | memoryview], length: int) -> Iterator[list[memoryview]]:
    """Split the bytes of chunks into blocks of one length, each a list of parts.

    The last block may be shorter. Block boundaries depend only on the bytes, not on the chunks,
    because they affect the compressed size.
    """
    parts: list[memoryview] = []
    room = length
    for piece in pieces:
        rest = memoryview(piece)
        while len(rest):
            parts.append(rest[:room])
            rest = rest[room:]
            room -= len(parts[-1])
            if not room:
                yield parts
                parts, room = [], length
    if parts:
        yield parts


def run_encrypt(job: Job[EncryptStage]) -> None:
    """Write the encrypted file.

    Raises:
        ArtifactError: the model is too large.
        RecipeError: the environment variable has no key, or the key changed during the build.
        UnsupportedError: the package cryptography is not installed.
    """
    settings, where = job.asked, job.place("protect")
    key = key_from_environment(settings.variable, where, settings.key_id)
    if settings.artifact == "frozen":
        content = graph_to_bytes(job.graph(settings.model))
    else:
        content = b"".join(job.data(settings.model))
    try:
        encrypted = encrypt(content, key)
    except UnsupportedError as error:
        raise error.at(where) from error
    write_bytes(job.output(*settings.output_files), encrypted)
