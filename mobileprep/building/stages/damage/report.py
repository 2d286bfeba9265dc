"""Report the tensors with the largest quantization error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mobileprep.building.report.layout import TextTable, fitted
from mobileprep.building.stages.damage.spec import DamageRecord, TensorRecord

TENSOR_HEADINGS: Final = ("tensor", "of", "dB", "cosine", "clipped", "RMSE/scale")


_ACTIVATIONS, _WEIGHTS = 3, 2


def damage_lines(damage: DamageRecord, width: int) -> Iterator[str]:
    """Yield a table of the activations and weights with the largest error."""
    if damage.unmeasured:
        yield f"tensors  not compared with float: {damage.unmeasured}"
        return
    samples = f"{damage.samples} sample{'s' * (damage.samples != 1)}"
    yield (
        f"tensors  {len(damage.tensors)} compared with float on {samples} of {damage.data}, "
        "those that lost most (rounding alone has an RMSE of 0.289 of the scale):"
    )
    activations = [tensor for tensor in damage.tensors if not tensor.is_weights]
    weights = [tensor for tensor in damage.tensors if tensor.is_weights]
    shown = (*activations[:_ACTIVATIONS], *weights[:_WEIGHTS])
    if shown:
        table = TextTable(TENSOR_HEADINGS, tuple(map(tensor_cells, shown)), left=2)
        yield from (f"  {line}" for line in fitted(table, width - 2))


def tensor_cells(tensor: TensorRecord) -> tuple[str, ...]:
    """Format a tensor as a row below ``TENSOR_HEADINGS``."""
    clipped, steps = tensor.clipped, tensor.rmse_over_scale
    return (
        tensor.tensor,
        "weights" if tensor.is_weights else tensor.op,
        f"{tensor.sqnr:.1f}",
        f"{tensor.cosine:.4f}",
        "-" if clipped is None else f"{clipped:.2%}",
        "-" if steps is None else f"{steps:.3f}",
    )
