"""The stage `layers`: its parameters, inputs, outputs, and record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from msgspec import Struct

from mobileprep.building.plan.engines import regex_engine
from mobileprep.building.plan.sources import calibration_data, data_files, labels_of
from mobileprep.building.plan.spec import Files, Stage, StageSpec, Upstream, places
from mobileprep.building.stages.calibrate.spec import (
    CalibrateStage,
    calibrate_spec,
    calibration_files,
)
from mobileprep.building.stages.freeze.spec import GRAPH, Frozen
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Data, InputSpec
from mobileprep.recipe.validation_settings import INTEGER_MODES, Quantize

_MODES: Final = frozenset({"weights", "int4", *INTEGER_MODES})
# Enough for ratios over all elements of a layer; each sample runs the network about nine times.
_SAMPLES: Final = 4
# Steps after which names or the order of nodes differ, and nothing else.
_RENAMING: Final = frozenset({"obfuscate_names", "sort_by_execution_order"})


class SharesRecord(Struct, frozen=True):
    """The shares of an error's energy by cause, which add up to 1.

    Args:
        weights: rounding weights.
        clipping: clipping activations to their ranges.
        rounding: rounding activations.
        rest: rounding biases.
    """

    weights: float
    clipping: float
    rounding: float
    rest: float


class LayerErrorRecord(Struct, frozen=True):
    """The error of a layer's output after some repairs.

    Args:
        sqnr: signal-to-noise ratio in dB with all layers quantized, from -200 to 200.
        alone: the same with float inputs and only this layer quantized; None if its nodes cannot
            run on their own.
        shares: causes of the layer's own error; None without an error.
    """

    sqnr: float
    alone: float | None
    shares: SharesRecord | None


class LayerRecord(Struct, frozen=True):
    """The errors of a layer.

    Args:
        layer: the layer's node.
        op: its LiteRT operator.
        errors: its errors before and after each repair; None where it does not exist.
    """

    layer: str
    op: str
    errors: tuple[LayerErrorRecord | None, ...]


class OutputErrorRecord(Struct, frozen=True):
    """The error of an output after some repairs.

    Args:
        sqnr: signal-to-noise ratio in dB, from -200 to 200.
        shares: causes of the error; None without an error.
    """

    sqnr: float
    shares: SharesRecord | None


class OutputRecord(Struct, frozen=True):
    """The errors of an output.

    Args:
        output: name of the output.
        errors: its errors before and after each repair.
    """

    output: str
    errors: tuple[OutputErrorRecord | None, ...]


class LayersRecord(Struct, frozen=True):
    """Quantization errors of the layers of a .tflite file, ``layers.json``.

    Args:
        data: file of the samples, as named in the recipe.
        samples: number of samples.
        repairs: repairs in their order. The first errors are those without repairs, the last ones
            those of the file.
        layers: the layers of the file in execution order.
        outputs: the float outputs.
        unmeasured: why nothing was measured; empty if it was.
    """

    data: str
    samples: int
    repairs: tuple[str, ...] = ()
    layers: tuple[LayerRecord, ...] = ()
    outputs: tuple[OutputRecord, ...] = ()
    unmeasured: str = ""


class LayersStage(Stage, frozen=True, kw_only=True):
    """Compare the layers of a quantized .tflite file with float, before and after each repair.

    Args:
        data: the samples.
        reading: reading options; None to detect them from the content.
        labels: default name of the labels, which are not inputs.
        count: maximum number of samples.
        inputs: the inputs.
        repairs: names of the repairs.
        graphs: the graph before the repairs, and after each.
        ranges: the measured ranges of each graph; empty for modes without ranges.
        interface: inputs and outputs.
        assets: files that the graphs read.
        quantize: quantization of the file.
        flex: whether the file may use the Flex delegate.
        regular_expressions: regular expression engine, with its version.
    """

    stage_name: ClassVar[str] = "layers"
    stage_version: ClassVar[int] = 1
    RECORD: ClassVar[str] = "layers.json"
    reported: ClassVar[type[Struct] | None] = LayersRecord

    data: Files
    reading: Data | None = None
    labels: str = "label"
    count: int
    inputs: tuple[InputSpec, ...] = ()
    repairs: tuple[str, ...] = ()
    graphs: tuple[Upstream, ...]
    ranges: tuple[Upstream, ...] = ()
    interface: Upstream
    assets: Upstream
    quantize: Quantize
    flex: bool = False
    regular_expressions: str = ""


def is_measured(target: Target) -> bool:
    """Return whether a target's file is a LiteRT file with integers."""
    return target.artifact == "tflite" and target.quantize.mode in _MODES


def layers_spec(
    target: Target, frozen: Frozen, steps: Sequence[str], add: Callable[[StageSpec], str]
) -> StageSpec | None:
    """Return the stage that measures the layers of a target's file, if the recipe asks for it.

    Args:
        target: the target.
        frozen: its source.
        steps: the tasks of its transforms.
        add: adds the calibration of a graph to the plan, and returns its task.

    Returns:
        None if it is not requested, or if there are no samples.
    """
    data = calibration_data(target) if target.validation is None else target.validation.data
    if not is_measured(target) or not target.quantization_report or data is None:
        return None
    repairs, graphs = _graphs(target, frozen, steps)
    ranges: list[Upstream] = []
    calibration = target.calibration if target.ranges_of_file else None
    if calibration is not None:
        if calibration_files(calibration)[1] is not None:
            # A file of ranges fits only the graph that is published.
            repairs, graphs = [], graphs[-1:]
        for graph in graphs:
            label = f"{graph.task.rpartition('/')[2]}-layers-calibrate"
            spec = calibrate_spec(target, calibration, label, graph, frozen, for_litert=True)
            ranges.append(Upstream(add(spec), CalibrateStage.RANGES))
    stage = LayersStage(
        data=data_files(data),
        reading=data,
        labels=labels_of(target),
        count=_SAMPLES,
        inputs=target.inputs,
        repairs=tuple(repairs),
        graphs=tuple(graphs),
        ranges=tuple(ranges),
        interface=frozen.interface,
        assets=frozen.assets,
        quantize=target.quantize,
        flex=target.flex,
        regular_expressions=regex_engine(),
    )
    return StageSpec(f"{target.folder}/layers", stage, places(target, "inputs", "quantize"))


def _graphs(
    target: Target, frozen: Frozen, steps: Sequence[str]
) -> tuple[list[str], list[Upstream]]:
    """Return the names of the repairs, and the graph before them and after each."""
    count = len(steps)
    while count and target.transforms[count - 1].name in _RENAMING:
        count -= 1
    repairs = [at for at in range(count) if target.transforms[at].is_repair]
    first = repairs[0] if repairs else count
    ends = [first, *(at + 1 for at in repairs)]
    # Steps after the last repair, such as align_with_previous, belong to it.
    ends[-1] = count
    graphs = [Upstream(steps[end - 1], GRAPH) if end else frozen.graph for end in ends]
    return [target.transforms[at].name for at in repairs], graphs
