"""Count a model, and estimate its sizes, its latency, and its memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.candidate.spec import Candidate, CandidateStage
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.package.run import compressed_size
from mobileprep.data.source import data_inputs
from mobileprep.errors import MobileprepError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.opdefs.definitions import DEFAULT_RELEASE
from mobileprep.graph.serde import serialized_size
from mobileprep.graph.tensor import Tensor
from mobileprep.inspection.costs import CountedRun, counted_run
from mobileprep.inspection.memory import memory_of
from mobileprep.litert.convert import converted
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.refusals import InexpressibleError
from mobileprep.targets.op_classes import class_costs
from mobileprep.targets.target_check import target_gaps
from mobileprep.targets.targets import Device, likely_seconds
from mobileprep.transforms.rewriting.clipping import eightbit_constant

# As in quantize_weights, which stores two floats with each constant.
_MINIMUM_SIZE: Final = 1024
_RANGE_BYTES: Final = 8
_FLOAT_BYTES: Final = 4
# Compressed share of trained 8-bit weights: that of most networks.
_COMPRESSED_SHARES: Final = (0.4, 0.95)


def run(job: Job[CandidateStage]) -> None:
    """Write ``candidate.json``.

    The record is informational, so an error is reported in it and does not fail the build.
    """
    settings = job.asked
    ends, graph = job.record(Interface, settings.interface), job.graph(settings.graph)
    declared = {fed.name: fed.shape for fed in settings.inputs}
    try:
        inputs = {fed.name: fed.shape for fed in data_inputs(graph, ends.inputs, declared)}
        counted = counted_run(graph, ends.outputs, inputs)
        candidate = counted_candidate(
            settings.model, counted, settings.device, ram_bytes=_peak(counted, inputs, ends.outputs)
        )
        if settings.artifact == "tflite":
            lacks = litert_lacks(graph, inputs, ends.outputs)
        else:
            releases = settings.registration or (DEFAULT_RELEASE,)
            lacks = tensorflow_lacks(graph, releases, settings.platform)
        candidate = replace(candidate, lacks=lacks)
    except MobileprepError as error:
        candidate = Candidate(settings.model, error.message)
    job.write_record(settings.RECORD, candidate)


def counted_candidate(
    model: str,
    run: CountedRun,
    device: Device | None,
    *,
    ram_bytes: int | None,
    is_trained: bool = True,
) -> Candidate:
    """Return the numbers of a counted model, without unsupported ops and metric.

    Args:
        ram_bytes: peak memory while the model is loaded and run; None if it is not known.
        is_trained: whether the constants have the model's values, which are then compressed.
    """
    tensors = [node.attr_tensor("value") for node in run.constants()]
    eightbit = sum(map(_eightbit_size, tensors))
    if is_trained:
        size = compressed_size(map(_eightbit_bytes, tensors))
        compressed = (size, size)
    else:
        low, high = (round(share * eightbit) for share in _COMPRESSED_SHARES)
        compressed = (low, high)
    floats = sum(map(_float_size, tensors))
    likely = None if device is None else likely_seconds(device, run.costs)
    return Candidate(
        model,
        parameters=sum(t.size for t in tensors),
        float_bytes=floats,
        eightbit_bytes=eightbit,
        compressed_bytes=compressed,
        flops=run.costs.flops,
        uncounted=run.costs.uncounted,
        best_seconds=_best_seconds(run, device),
        likely_seconds=() if likely is None else (likely.low, likely.high),
        ram_bytes=ram_bytes,
        notes=tuple(_notes(run)),
        assumptions=tuple(_assumptions(run, device, is_trained=is_trained)),
    )


def _peak(run: CountedRun, inputs: Mapping[str, TensorShape], outputs: Sequence[str]) -> int | None:
    size = serialized_size(run.graph)
    try:
        return memory_of(run.graph, inputs, outputs, kind="frozen", file_bytes=size).peak
    except MobileprepError:
        return None


def _best_seconds(run: CountedRun, device: Device | None) -> float | None:
    """Return the time at the device's rate; a fitted profile has only a likely one."""
    if device is None or device.rates:
        return None
    return device.seconds(class_costs(run.costs.nodes))


def _notes(run: CountedRun) -> Iterator[str]:
    if run.costs.uncounted:
        unknown = "give the input shapes if they are open"
        yield f"operations not known of: {', '.join(run.costs.uncounted)}; {unknown}"
    for loop in run.loops:
        if loop.iterations is None:
            yield f"loop {loop.name!r} is counted for 1 iteration"


def _assumptions(run: CountedRun, device: Device | None, *, is_trained: bool) -> Iterator[str]:
    """Yield the assumptions of the estimates, in the order of the columns."""
    if not is_trained:
        low, high = _COMPRESSED_SHARES
        yield f"compressed without weights: {low:.0%} to {high:.0%} of the 8-bit size"
    if device is not None:
        likely = likely_seconds(device, run.costs).assumption
        if device.rates:
            yield f"likely on {device.title}: {likely}"
        else:
            yield f"best on {device.title}: {device.rate}"
            yield f"likely: {likely}"
    yield "RAM: peak while the model is loaded and run, without the runtime itself"


def _float_size(tensor: Tensor) -> int:
    """Return the bytes of a constant before quantization."""
    is_float = tensor.dtype.is_floating or tensor.dtype in _EIGHTBIT
    return _FLOAT_BYTES * tensor.size if is_float else tensor.nbytes


_EIGHTBIT: Final = frozenset({DType.INT8, DType.UINT8, DType.QINT8, DType.QUINT8})


def _eightbit_size(tensor: Tensor) -> int:
    if not tensor.dtype.is_floating:
        return tensor.nbytes
    is_large = tensor.size >= _MINIMUM_SIZE
    return tensor.size + _RANGE_BYTES if is_large else _FLOAT_BYTES * tensor.size


def _eightbit_bytes(tensor: Tensor) -> bytes | memoryview:
    """Return the content of a constant as ``quantize_weights`` stores it, for compression."""
    if tensor.dtype is DType.STRING:
        return b"".join(tensor.array().ravel())
    if not tensor.dtype.is_floating:
        return tensor.raw()
    values = tensor.array().astype(np.float32)
    quantized = eightbit_constant(values) if tensor.size >= _MINIMUM_SIZE else None
    return values.tobytes() if quantized is None else quantized.values.tobytes()


def tensorflow_lacks(graph: Graph, releases: Iterable[str], platform: str) -> tuple[str, ...]:
    """Return the ops of a graph that default builds lack, each with the cause."""
    gaps = (gap for release in releases for gap in target_gaps(graph, release, platform))
    return tuple(dict.fromkeys(f"{gap.op or 'graph'} ({gap.cause})" for gap in gaps))


def litert_lacks(
    graph: Graph, inputs: Mapping[str, TensorShape], outputs: Sequence[str]
) -> tuple[str, ...]:
    """Return the ops of a graph that LiteRT cannot express."""
    try:
        converted(graph, [CutInput(name) for name in inputs], outputs)
    except InexpressibleError as error:
        return tuple(dict.fromkeys(refusal.op for refusal in error.refusals))
    return ()
