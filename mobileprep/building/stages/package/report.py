"""Report the model file and its kernels."""

from __future__ import annotations

from mobileprep.building.stages.package.spec import CompressRecord, KernelsRecord, ModelFacts


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
