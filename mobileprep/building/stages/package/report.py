"""Report the model file and its kernels."""

from __future__ import annotations

from collections.abc import Iterator

from mobileprep.building.stages.package.spec import (
    CompressRecord,
    KernelsRecord,
    LiteEnd,
    LiteInterface,
    ModelFacts,
)


def model_line(model: ModelFacts, packed: CompressRecord) -> str:
    """Format the model file's size, compressed size, and number of nodes."""
    return (
        f"model    {model.file}: {model.bytes:,} bytes, {packed.bytes:,} compressed "
        f"({packed.compressor}), {model.nodes:,} nodes{f'; {model.basis}' if model.basis else ''}"
    )


def kernels_text(record: KernelsRecord) -> str:
    """Describe a header.

    Example: ``12 kernels of TensorFlow 1.15 registered, about 534,120 bytes of code``.
    """
    plural = "s" * (record.kernels != 1)
    code = "" if record.bytes is None else f", about {record.bytes:,} bytes of code"
    return f"{record.kernels:,} kernel{plural} of TensorFlow {record.tensorflow} registered{code}"


def lite_lines(lite: LiteInterface) -> Iterator[str]:
    """Yield the inputs of a .tflite file with open sizes, and the states of a stream.

    Example: ``open     input x, float32 [?, ?, 40]: resize it before a run``.
    """
    for end in lite.inputs:
        if -1 in end.shape:
            yield f"open     input {_end(end)}: resize it before a run"
    if lite.streaming is None:
        return
    steps, states = lite.streaming.steps, lite.streaming.states
    plural = "s" * (steps != 1)
    by_name = {end.name: end for end in lite.inputs}
    fed = ", ".join(_end(by_name[name]) for name in lite.streaming.inputs)
    yield f"stream   {steps} time step{plural} a call: {fed}"
    for state in states:
        yield f"  state {_end(by_name[state.input])}: {state.output} of the previous call"


def _end(end: LiteEnd) -> str:
    """Format an input, such as ``x, float32 [1, ?, 40]``."""
    return f"{end.name}, {end.dtype} [{', '.join('?' if s < 0 else str(s) for s in end.shape)}]"
