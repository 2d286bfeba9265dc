"""What a report tells of quantization: how a target quantizes, and what that did to tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mobileprep.plan.running_records import DamageRecord, TensorRecord
from mobileprep.report.layout import TextTable, fitted

TENSOR_HEADINGS: Final = ("tensor", "of", "dB", "cosine", "clipped", "RMSE/scale")
# By transform: what it is called, and the option that tells more.
_KNOWN: Final = {
    "quantize_weights": ("weights", ""),
    "linear_quantize_weights": ("weights, {} bits", "bits"),
    "cast_weights": ("weights, {}", "type"),
    "round_weights": ("round", ""),
    "quantize_nodes": ("nodes, {}", "ranges"),
}
# What is told of options that are left out.
_DEFAULTS: Final = {"bits": 8, "type": "float16", "ranges": "as the original"}
_ACTIVATIONS, _WEIGHTS = 3, 2


def quantization_text(settings: Mapping[str, Any]) -> str:
    """How a target quantizes: ``weights``, ``nodes, observed``, ``int8``; empty if it does not.

    Args:
        settings: the target's, as its manifest has them: ``transforms``, each with ``name`` and
            ``options``, and the ``quantize`` section of a .tflite target.
    """
    words = []
    for step in settings.get("transforms", ()):
        text, option = _KNOWN.get(step["name"], ("", ""))
        given = step["options"].get(option, _DEFAULTS.get(option))
        words.append(text.format(given))
    mode = settings.get("quantize", {}).get("mode", "none")
    words += [mode] if mode != "none" else []
    return " and ".join(dict.fromkeys(filter(None, words)))


def damage_lines(damage: DamageRecord, width: int) -> Iterator[str]:
    """The activations and the weights that lost most, as a table.

    Args:
        damage: what quantizing has done.
        width: the most characters of a line.
    """
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
    """The cells of a tensor's row, under ``TENSOR_HEADINGS``."""
    clipped, steps = tensor.clipped, tensor.rmse_over_scale
    return (
        tensor.tensor,
        "weights" if tensor.is_weights else tensor.op,
        f"{tensor.sqnr:.1f}",
        f"{tensor.cosine:.4f}",
        "-" if clipped is None else f"{clipped:.2%}",
        "-" if steps is None else f"{steps:.3f}",
    )
