"""Ranking and searching the layers to quantize."""

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
"""Quantizes the float graph, but for the layers of these names."""


class OutputDamage(Struct, frozen=True):
    """How far a graph's outputs are from the float graph's.

    Args:
        sqnr: signal to noise in dB, of the output where it is lowest.
        share_of_peak: the largest difference of any output's element, as a share of the largest
            magnitude that the float graph gives for that output.
    """

    sqnr: float
    share_of_peak: float


class LayerDamage(Struct, frozen=True):
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

    Returns:
        The layers that were measured, in the order of ``layer_damage``; and how many there are.
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
        tell: called after each layer with how many are done, and how many there are.
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
        tell: called after each layer with how many are done, and how many there are.

    Returns:
        The layers by what their quantization alone does, the worst first.
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


def layers_expression(names: Collection[str]) -> str:
    """A regular expression for the layers of some names, and no others."""
    escaped = "|".join(re.escape(name) for name in names)
    return f"^({escaped})$" if len(names) > 1 else f"^{escaped}$"


def rule_text(mode: str, names: Collection[str]) -> str:
    """A rule as ``quantize_nodes`` takes it."""
    return f"mode={mode} nodes={layers_expression(names)}"


def recipe_rule(mode: str, names: Collection[str]) -> str:
    """A rule for a recipe; in single quotes nothing of a regular expression is YAML's."""
    quoted = layers_expression(names).replace("'", "''")
    return f"{{mode: {mode}, nodes: '{quoted}'}}"


class Levels(Struct, frozen=True, order=True):
    """How many layers are out of eight bits; the less of them, the better.

    Args:
        floats: how many of the worst are float.
        weights: how many of the next worst have their weights alone in eight bits.
    """

    floats: int
    weights: int


class Try(Struct, frozen=True):
    """What a try came to.

    Args:
        levels: what was tried.
        shortfall: how far limits are missed; 0 where all hold, infinite where nothing can be said.
    """

    levels: Levels
    shortfall: float

    @property
    def holds(self) -> bool:
        """Whether all limits hold."""
        return self.shortfall == 0


_Found = TypeVar("_Found")
_Asking: TypeAlias = Generator[Levels, bool, _Found]


def next_levels(layers: int, tries: Sequence[Try]) -> Levels | None:
    """What to try next; None where nothing is left that could be better.

    All layers in eight bits come first; then the fewest that have to have their weights alone in
    them. If that misses for all, the fewest that have to be float beside, and then again the fewest
    of the others whose weights alone are in eight bits. At least one layer stays quantized.
    """
    held = {one.levels: one.holds for one in tries}
    search = _search(layers)
    try:
        levels = next(search)
        while levels in held:
            levels = search.send(held[levels])
    except StopIteration:
        return None
    return levels


def _search(layers: int) -> _Asking[None]:
    """Asks for levels one after another whether they hold."""
    found = yield from _fewest(layers, lambda count: Levels(0, count))
    if found is not None or layers < 2:
        return
    floats = yield from _fewest(layers - 1, lambda count: Levels(count, layers - count))
    if floats is not None:
        yield from _fewest(layers - floats, lambda count: Levels(floats, count))


def _fewest(last: int, levels: Callable[[int], Levels]) -> _Asking[int | None]:
    """The least count up to ``last`` whose levels hold, by bisection; None without."""
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
    """Of the tries that hold, the one with the fewest layers out of eight bits; None without."""
    return min((one for one in tries if one.holds), key=lambda one: one.levels, default=None)


def nearest_try(tries: Sequence[Try]) -> Try:
    """The try that misses its limits by least."""
    return min(tries, key=lambda one: (one.shortfall, one.levels))


def shortfall_of(recorded: float | None) -> float:
    """The shortfall that a record holds, where None is infinity."""
    return math.inf if recorded is None else recorded
