"""Finds on data by how much rounded weights move the mean of each channel.

Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction (2019),
section 4.2 and appendix D, the empirical correction: layer after layer, each with those before it
corrected, and before the activation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.reachability import closure
from mobileprep.ir.tensor import Array
from mobileprep.rewriting.biases import Biased, BiasedLayer, replaced, shifted
from mobileprep.runtime.interpreter import Interpreter

Runs = Sequence[Mapping[str, Array]]
"""What to feed, run by run."""


def empirically_corrected(biased: Biased, rounded: Mapping[str, Node], runs: Runs) -> Graph:
    """The graph with biases that keep the channels' means where they are in float.

    The outputs of the layers that later ones need are kept for all runs, so that each layer runs
    once with float weights and once with rounded ones.

    Args:
        biased: a graph whose layers have biases.
        rounded: the constants of weights as they will be after quantizing, by name.
        runs: what to feed.

    Raises:
        UsageError, InvalidGraphError, UnsupportedError: the graph does not run on the data.
    """
    wanted = _float_means(biased, runs)
    now = replaced(biased.graph, rounded)
    names = [layer.layer.name for layer in biased.layers]
    last = _last_uses(biased.graph, names)
    fed: list[dict[str, Array]] = [dict(run) for run in runs]
    corrected: dict[str, Node] = {}
    for at, layer in enumerate(biased.layers):
        interpreter = Interpreter(now)
        outputs = [interpreter.run([names[at]], feeds)[0] for feeds in fed]
        shift = wanted[at] - _mean(outputs, layer)
        bias = corrected[layer.bias.name] = shifted(layer.bias, shift)
        now = replaced(now, {bias.name: bias})
        for feeds, output in zip(fed, outputs, strict=True):
            feeds[names[at]] = output
            for name in [n for n in feeds if last.get(n, len(names)) <= at]:
                del feeds[name]
    return replaced(biased.graph, corrected)


def _float_means(biased: Biased, runs: Runs) -> list[Array]:
    """For each layer the mean of each channel that it puts out, over all runs."""
    interpreter = Interpreter(biased.graph)
    names = [layer.layer.name for layer in biased.layers]
    totals = [np.zeros(layer.channels) for layer in biased.layers]
    counts = [0] * len(names)
    for run in runs:
        for at, output in enumerate(interpreter.run(names, run)):
            lines = _by_channel(output, biased.layers[at])
            totals[at] += lines.sum(axis=0, dtype=np.float64)
            counts[at] += len(lines)
    return [total / max(count, 1) for total, count in zip(totals, counts, strict=True)]


def _mean(outputs: Sequence[Array], layer: BiasedLayer) -> Array:
    """The mean of each channel over all outputs."""
    lines = [_by_channel(output, layer) for output in outputs]
    total: Array = sum(part.sum(axis=0, dtype=np.float64) for part in lines)
    return total / max(sum(map(len, lines)), 1)


def _by_channel(output: Array, layer: BiasedLayer) -> Array:
    """Shape [elements of each channel, channels]."""
    return np.moveaxis(output, layer.axis, -1).reshape(-1, layer.channels)


def _last_uses(graph: Graph, layers: Sequence[str]) -> dict[str, int]:
    """For each layer by its place the last layer that takes its output with no other between."""
    done: set[str] = set()
    last = {}
    for at, name in enumerate(layers):
        last[name] = at

        def before(node: str, start: str = name) -> list[str]:
            if node in done and node != start:
                return []
            return [r.node for r in graph[node].inputs]

        last.update(dict.fromkeys(closure([name], before) & done, at))
        done.add(name)
    return last
