"""Rank layers by quantization error, and search for the layers to quantize."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from msgspec import Struct

from mobileprep.data.calibration.damage import SEED
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.differences import DamageSum, differences
from mobileprep.runtime.interpreter import Interpreter

Quantize = Callable[[Collection[str]], Graph]
"""Quantizes the float graph, except for the layers with these names."""


class OutputDamage(Struct, frozen=True):
    """The difference between a graph's outputs and the float graph's.

    Args:
        sqnr: the signal-to-noise ratio in dB of the worst output.
        share_of_peak: the largest difference of any element, divided by the largest magnitude of
            that output in the float graph.
    """

    sqnr: float
    share_of_peak: float


class LayerDamage(Struct, frozen=True):
    """The effect of quantizing one layer on the outputs.

    Args:
        layer: the name of the layer in the float graph.
        op: its op in the float graph.
        alone: the damage with only this layer quantized.
        without: the damage with all layers quantized except this one.
    """

    layer: str
    op: str
    alone: OutputDamage
    without: OutputDamage


class OutputComparison:
    """Compares the outputs of graphs with those of a float graph on the same samples.

    Args:
        graph: the float graph.
        fetches: the outputs.
        feeds: the feeds of each run.

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
        """Return the difference between a graph's outputs and the float graph's.

        If an output differs in shape, for example in the number of detections, both are padded with
        zeros.
        """
        runs = zip(self._expected, self._outputs(graph), strict=True)
        pairs = [[_alike(x, y) for x, y in zip(*run, strict=True)] for run in runs]
        expected, actual = ([[pair[side] for pair in run] for run in pairs] for side in (0, 1))
        gaps = differences(self._fetches, expected, actual)
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
    """Pad two arrays of the same rank with zeros to a common shape.

    Arrays are unchanged if the padding would be larger than both of them.
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
    """Return the layers of a float graph that are quantized in another graph, in graph order.

    A quantized layer keeps its name, but has a different op or different weights.
    """
    names = []
    for node in graph:
        there = quantized.by_name.get(node.name)
        if there is None or len(node.data_inputs) < 2:
            continue
        is_other = there.op != node.op or there.data_inputs[1:] != node.data_inputs[1:]
        if is_other and graph.by_name.get(node.data_inputs[1].node) is not None:
            names.append(node.name)
    return tuple(names)


def worst_alone(
    graph: Graph, quantize: Quantize, comparison: OutputComparison, enough: Callable[[], bool]
) -> tuple[tuple[str, ...], int]:
    """Rank layers by the damage of quantizing each alone, the worst first.

    Args:
        graph: the float graph.
        quantize: quantizes it.
        comparison: compares the quantized graphs with it.
        enough: called after each layer; stops the measurement if true.

    Returns:
        The measured layers, in the order of ``layer_damage``; and the number of all layers.
    """
    layers = quantized_layers(graph, quantize(()))
    ratios: dict[str, float] = {}
    for layer in layers:
        others = [other for other in layers if other != layer]
        ratios[layer] = comparison.damage(quantize(others)).sqnr
        if enough():
            break
    return tuple(sorted(ratios, key=ratios.__getitem__)), len(layers)


def damage_alone(
    layers: Sequence[str],
    quantize: Quantize,
    comparison: OutputComparison,
    report: Callable[[int, int], None] = lambda done, count: None,
) -> tuple[OutputDamage, ...]:
    """Return the damage of quantizing each layer alone, in the order of ``layers``.

    Args:
        layers: the layers to measure.
        quantize: quantizes the float graph.
        comparison: compares the quantized graphs with it.
        report: called after each layer with the number of measured layers and the total.
    """
    damages = []
    for done, layer in enumerate(layers, start=1):
        others = [other for other in layers if other != layer]
        damages.append(comparison.damage(quantize(others)))
        report(done, len(layers))
    return tuple(damages)


def layer_damage(
    graph: Graph,
    quantize: Quantize,
    comparison: OutputComparison,
    report: Callable[[int, int], None] = lambda done, count: None,
) -> tuple[LayerDamage, ...]:
    """Measure the damage of quantizing each layer alone, and of all layers except that one.

    Args:
        graph: the float graph.
        quantize: quantizes it.
        comparison: compares the quantized graphs with it.
        report: called after each layer with the number of measured layers and the total.

    Returns:
        The layers by the damage of quantizing each alone, the worst first.
    """
    layers = quantized_layers(graph, quantize(()))
    damages = []
    for done, layer in enumerate(layers, start=1):
        others = [other for other in layers if other != layer]
        alone = comparison.damage(quantize(others))
        without = comparison.damage(quantize([layer]))
        damages.append(LayerDamage(layer, graph[layer].op, alone, without))
        report(done, len(layers))
    return tuple(sorted(damages, key=lambda one: one.alone.sqnr))


def layers_expression(names: Collection[str]) -> str:
    """Return a regular expression that matches exactly these layer names."""
    escaped = "|".join(re.escape(name) for name in names)
    return f"^({escaped})$" if len(names) > 1 else f"^{escaped}$"


def rule_text(mode: str, names: Collection[str]) -> str:
    """Return a rule in the syntax of ``quantize_nodes``."""
    return f"mode={mode} nodes={layers_expression(names)}"


def recipe_rule(mode: str, names: Collection[str]) -> str:
    """Return a rule in recipe syntax; single quotes keep YAML from interpreting the expression."""
    quoted = layers_expression(names).replace("'", "''")
    return f"{{mode: {mode}, nodes: '{quoted}'}}"


class Levels(Struct, frozen=True, order=True):
    """The number of layers that are not fully quantized; fewer are better.

    Args:
        floats: the number of worst layers that stay float.
        weights: the number of next worst layers with only 8-bit weights.
    """

    floats: int
    weights: int


class Try(Struct, frozen=True):
    """The result of a try.

    Args:
        levels: the levels that were tried.
        shortfall: the distance from the limits; 0 if all hold, infinite if it cannot be measured.
    """

    levels: Levels
    shortfall: float

    @property
    def holds(self) -> bool:
        """Whether all limits hold."""
        return self.shortfall == 0


_Result = TypeVar("_Result")
_Search: TypeAlias = Generator[Levels, bool, _Result]


def next_levels(layers: int, tries: Sequence[Try]) -> Levels | None:
    """Return the levels to try next, or None if no untried levels could be better.

    The search first tries all layers in 8 bits, then bisects for the fewest layers with only 8-bit
    weights. If the limits do not hold even with 8-bit weights for all layers, it bisects for the
    fewest float layers, then for the fewest weights-only layers among the rest. At least one layer
    stays quantized.
    """
    return _next(_search(layers), tries)


def next_exceptions(count: int, tries: Sequence[Try]) -> Levels | None:
    """Return the number of exceptions to try next, as ``floats``, or None after the last try.

    The search first tries none, then all, then some, and bisects for the fewest. More exceptions
    can be worse, because errors may cancel out.
    """
    return _next(_fewest_exceptions(count), tries)


def _fewest_exceptions(count: int) -> _Search[None]:
    if (yield Levels(0, 0)):
        return
    for quarters in (4, 3, 2, 1):
        last = count * quarters // 4
        if last and (yield Levels(last, 0)):
            low = 0
            while last - low > 1:
                middle = (low + last) // 2
                low, last = (low, middle) if (yield Levels(middle, 0)) else (middle, last)
            return


def _next(search: _Search[_Result], tries: Sequence[Try]) -> Levels | None:
    held = {one.levels: one.holds for one in tries}
    try:
        levels = next(search)
        while levels in held:
            levels = search.send(held[levels])
    except StopIteration:
        return None
    return levels


def _search(layers: int) -> _Search[None]:
    """Yield levels, and receive whether each holds."""
    fewest = yield from _fewest(layers, lambda count: Levels(0, count))
    if fewest is not None or layers < 2:
        return
    floats = yield from _fewest(layers - 1, lambda count: Levels(count, layers - count))
    if floats is not None:
        yield from _fewest(layers - floats, lambda count: Levels(floats, count))


def _fewest(last: int, levels: Callable[[int], Levels]) -> _Search[int | None]:
    """Return the smallest count up to ``last`` whose levels hold, by bisection, or None."""
    if (yield levels(0)):
        return 0
    if last == 0 or not (yield levels(last)):
        return None
    low, high = 0, last
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if (yield levels(middle)) else (middle, high)
    return high


def best_try(tries: Sequence[Try]) -> Try | None:
    """Return the successful try with the fewest layers out of 8 bits, or None."""
    return min((one for one in tries if one.holds), key=lambda one: one.levels, default=None)


def nearest_try(tries: Sequence[Try]) -> Try:
    """Return the try with the smallest shortfall."""
    return min(tries, key=lambda one: (one.shortfall, one.levels))


def shortfall_of(recorded: float | None) -> float:
    """Return a recorded shortfall; None is recorded for infinity."""
    return math.inf if recorded is None else recorded
