"""The stage `damage`: its parameters, inputs, outputs, and record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from msgspec import Struct

from mobileprep.building.plan.engines import regex_engine
from mobileprep.building.plan.sources import calibration_data, data_files, labels_of
from mobileprep.building.plan.spec import Files, Stage, StageSpec, Upstream, places
from mobileprep.building.report.layout import TextTable, fitted
from mobileprep.building.stages.check.spec import QUANTIZERS
from mobileprep.building.stages.freeze.spec import GRAPH, Frozen
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Data, InputSpec


class DamageRecord(Struct, frozen=True):
    """Quantization error of each tensor of a graph, ``damage.json``.

    Args:
        data: file of the samples, as named in the recipe.
        samples: number of samples.
        tensors: comparable tensors, by signal-to-noise ratio, lowest first.
        unmeasured: why nothing was measured; empty if it was.
    """

    data: str
    samples: int
    tensors: tuple[TensorRecord, ...] = ()
    unmeasured: str = ""


# Enough to rank tensors by error, and cheaper than a validation.
_SAMPLES: Final = 16


class DamageStage(Stage, frozen=True, kw_only=True):
    """Compare the tensors of a float graph with those of the quantized graph.

    Args:
        data: the samples.
        reading: reading options; None to detect them from the content.
        labels: default name of the labels, which are not inputs.
        count: maximum number of samples.
        inputs: the inputs.
        graph: the float graph.
        quantized: the quantized graph.
        interface: inputs and outputs.
        assets: files that the graphs read.
        regular_expressions: the interpreter's regular expression engine, with its version.
    """

    stage_name: ClassVar[str] = "damage"
    stage_version: ClassVar[int] = 3
    RECORD: ClassVar[str] = "damage.json"
    reported: ClassVar[type[Struct] | None] = DamageRecord

    data: Files
    reading: Data | None = None
    labels: str = "label"
    count: int
    inputs: tuple[InputSpec, ...] = ()
    graph: Upstream
    quantized: Upstream
    interface: Upstream
    assets: Upstream
    regular_expressions: str = ""


class TensorRecord(Struct, frozen=True):
    """Quantization error of a tensor.

    Args:
        tensor: name in the float graph: ``node`` or ``node:1``.
        op: op of its node.
        is_weights: whether it is a constant and not an activation.
        is_eightbit: whether it is stored in 8 bits itself, not only computed from 8-bit tensors.
        sqnr: signal-to-quantization-noise ratio in dB, from -200 to 200.
        cosine: cosine similarity of the two tensors.
        clipped: fraction of float values outside the range by more than half a step; None without
            a range.
        rmse_over_scale: root mean square error, in quantization steps; None without steps.
            Rounding alone results in 0.289.
    """

    tensor: str
    op: str
    is_weights: bool
    is_eightbit: bool
    sqnr: float
    cosine: float
    clipped: float | None
    rmse_over_scale: float | None


def damage_spec(target: Target, frozen: Frozen, steps: Sequence[str]) -> StageSpec | None:
    """Return the stage that compares the graphs before and after quantization.

    Returns:
        None without quantization or samples, or if the recipe turns it off.
    """
    data, names = _data(target), frozenset({"quantize_nodes"})
    if target.quantization_report is not None:
        names = QUANTIZERS if target.quantization_report else frozenset()
    places_of_steps = [at for at, step in enumerate(target.transforms) if step.name in names]
    if data is None or not places_of_steps:
        return None
    first, last = places_of_steps[0], places_of_steps[-1]
    stage = DamageStage(
        data=data_files(data),
        reading=data,
        labels=labels_of(target),
        count=_SAMPLES,
        inputs=target.inputs,
        graph=Upstream(steps[first - 1], GRAPH) if first else frozen.graph,
        quantized=Upstream(steps[last], GRAPH),
        interface=frozen.interface,
        assets=frozen.assets,
        regular_expressions=regex_engine(),
    )
    label = f"{last + 1:02d}-{target.transforms[last].name}-damage"
    return StageSpec(label, stage, places(target, "inputs", "outputs"))


def _data(target: Target) -> Data | None:
    """Return the validation's samples, else the calibration's if they exist."""
    if target.validation is not None:
        return target.validation.data
    return calibration_data(target)


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
