"""What each layer's quantization alone does to a graph's outputs, and what leaving it float saves.

TensorFlow Lite's quantization debugger calls leaving single layers in float selective quantization
(https://ai.google.dev/edge/litert/models/quantization_debugger).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from mobileprep.calibration.damage import SEED
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.tensor import Array
from mobileprep.numerics.differences import differences
from mobileprep.numerics.quantization_damage import DamageSum
from mobileprep.runtime.interpreter import Interpreter

Quantize = Callable[[Collection[str]], Graph]
"""Quantizes the float graph, but for the layers of these names."""


@dataclass(frozen=True)
class OutputDamage:
    """How far a graph's outputs are from the float graph's.

    Args:
        sqnr: signal to noise in dB, of the output where it is lowest.
        share_of_peak: the largest difference of any output's element, as a share of the largest
            magnitude that the float graph gives for that output.
    """

    sqnr: float
    share_of_peak: float


@dataclass(frozen=True)
class LayerDamage:
    """What quantizing one layer does to the outputs.

    Args:
        layer: its name in the float graph.
        op: its op there.
        alone: with this layer quantized and all others in float.
        without: with this layer in float and all others quantized.
    """

    layer: str
    op: str
    alone: OutputDamage
    without: OutputDamage


class OutputComparison:
    """Compares graphs with a float graph by what they give for the same samples.

    Args:
        graph: the float graph.
        fetches: the outputs.
        feeds: what is fed, run by run.

    Raises:
        UsageError, UnsupportedError, InvalidGraphError: the graph cannot be run.
    """

    def __init__(
        self, graph: Graph, fetches: Sequence[str], feeds: Sequence[Mapping[str, Array]]
    ) -> None:
        self._fetches = fetches
        self._feeds = feeds
        self._expected = self._outputs(graph)

    def damage(self, graph: Graph) -> OutputDamage:
        """How far a graph is off.

        Where an output has another shape, as with other numbers of detections, what either lacks
        counts as zeros.

        Raises:
            AccuracyError: an output has another number of axes.
            UsageError, UnsupportedError, InvalidGraphError: the graph cannot be run.
        """
        runs = zip(self._expected, self._outputs(graph), strict=True)
        pairs = [[_alike(x, y) for x, y in zip(*run, strict=True)] for run in runs]
        wanted, found = ([[pair[side] for pair in run] for run in pairs] for side in (0, 1))
        gaps = differences(self._fetches, wanted, found)
        sums = [DamageSum() for _ in self._fetches]
        for run in pairs:
            for total, (x, y) in zip(sums, run, strict=True):
                if x.dtype.kind == "f":
                    total.add(x, y)
        lowest = min(total.damage().sqnr for total in sums)
        return OutputDamage(lowest, max(gap.share for gap in gaps))

    def _outputs(self, graph: Graph) -> list[list[Array]]:
        running = Interpreter(graph, seed=SEED)
        return [[np.array(x) for x in running.run(self._fetches, feed)] for feed in self._feeds]


def _alike(x: Array, y: Array) -> tuple[Array, Array]:
    """Two arrays of the same number of axes, filled up with zeros to one shape.

    Those that differ along several axes stay as they are, where most of it would be zeros.
    """
    if x.shape == y.shape or x.ndim != y.ndim:
        return x, y
    shape = tuple(map(max, zip(x.shape, y.shape, strict=True)))
    if math.prod(shape) > 2 * (x.size + y.size):
        return x, y

    def filled(array: Array) -> Array:
        return np.pad(
            array, [(0, size - had) for size, had in zip(shape, array.shape, strict=True)]
        )

    return filled(x), filled(y)


def quantized_layers(graph: Graph, quantized: Graph) -> tuple[str, ...]:
    """The layers of a float graph that another graph has in quantized form, in the graph's order.

    A layer keeps its name, and becomes another op, or takes other weights.
    """
    found = []
    for node in graph:
        there = quantized.by_name.get(node.name)
        if there is None or len(node.data_inputs) < 2:
            continue
        is_other = there.op != node.op or there.data_inputs[1:] != node.data_inputs[1:]
        if is_other and graph.by_name.get(node.data_inputs[1].node) is not None:
            found.append(node.name)
    return tuple(found)


def worst_alone(
    graph: Graph, quantize: Quantize, comparison: OutputComparison, enough: Callable[[], bool]
) -> tuple[tuple[str, ...], int]:
    """Layers by what quantizing each alone does, the worst first.

    Args:
        graph: the float graph.
        quantize: quantizes it.
        comparison: what measures the outputs.
        enough: asked after each layer whether to leave it at those that are measured.

    Returns:
        The layers that were measured, in the order of ``layer_damage``; and how many there are.

    Raises:
        MobileprepError: see ``layer_damage``.
    """
    layers = quantized_layers(graph, quantize(()))
    found: dict[str, float] = {}
    for layer in layers:
        others = [other for other in layers if other != layer]
        found[layer] = comparison.damage(quantize(others)).sqnr
        if enough():
            break
    return tuple(sorted(found, key=found.__getitem__)), len(layers)


def damage_alone(
    layers: Sequence[str],
    quantize: Quantize,
    comparison: OutputComparison,
    tell: Callable[[int, int], None] = lambda done, count: None,
) -> tuple[OutputDamage, ...]:
    """What quantizing each layer does with all others in float, in the order of the layers.

    Args:
        layers: the names of the layers.
        quantize: quantizes the float graph.
        comparison: what measures the outputs.
        tell: called after each layer with how many are done, and how many there are.

    Raises:
        MobileprepError: what ``quantize`` raises, and what ``OutputComparison.damage`` does.
    """
    found = []
    for done, layer in enumerate(layers, start=1):
        others = [other for other in layers if other != layer]
        found.append(comparison.damage(quantize(others)))
        tell(done, len(layers))
    return tuple(found)


def layer_damage(
    graph: Graph,
    quantize: Quantize,
    comparison: OutputComparison,
    tell: Callable[[int, int], None] = lambda done, count: None,
) -> tuple[LayerDamage, ...]:
    """Quantize one layer at a time, and all but one.

    Args:
        graph: the float graph.
        quantize: quantizes it.
        comparison: what measures the outputs.
        tell: called after each layer with how many are done, and how many there are.

    Returns:
        The layers by what their quantization alone does, the worst first.

    Raises:
        MobileprepError: what ``quantize`` raises, and what ``OutputComparison.damage`` does.
    """
    layers = quantized_layers(graph, quantize(()))
    found = []
    for done, layer in enumerate(layers, start=1):
        others = [other for other in layers if other != layer]
        alone = comparison.damage(quantize(others))
        without = comparison.damage(quantize([layer]))
        found.append(LayerDamage(layer, graph[layer].op, alone, without))
        tell(done, len(layers))
    return tuple(sorted(found, key=lambda one: one.alone.sqnr))
