"""Finds by how much rounded weights move the mean of each channel, without data.

Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction (2019),
section 4.2: the errors of the weights times the means of what they are applied to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.rewriting.biases import Biased, BiasedLayer, replaced, shifted
from mobileprep.rewriting.layers import input_axis, output_axis, through

_APPLIED_EVENLY: Final = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul"})


def analytically_corrected(
    biased: Biased, rounded: Mapping[str, Node], means: Mapping[str, Array]
) -> tuple[Graph, int]:
    """The graph with biases that keep the channels' means where they are in float.

    Args:
        biased: a graph whose layers have biases.
        rounded: the constants of weights as they will be after quantizing, by name.
        means: of channels, by the node that puts them out; see ``channel_means``.

    Returns:
        The graph, and how many layers were corrected.
    """
    corrected: dict[str, Node] = {}
    for layer in biased.layers:
        mean = _mean(layer, means)
        if mean is None:
            continue
        right = layer.weights.attr_tensor("value").array()
        wrong = rounded[layer.weights.name].attr_tensor("value").array()
        shift = through(layer.layer, right, mean) - through(layer.layer, wrong, mean)
        corrected[layer.bias.name] = shifted(layer.bias, shift)
    return replaced(biased.graph, corrected), len(corrected)


def _mean(layer: BiasedLayer, means: Mapping[str, Array]) -> Array | None:
    """The mean of each channel that a layer takes, or None where it is not known."""
    node, ref = layer.layer, layer.layer.data_inputs[0]
    if node.op not in _APPLIED_EVENLY or ref.index or output_axis(node) != -1:
        return None
    if node.attr_bool("transpose_a", False):
        return None
    found = means.get(ref.node)
    shape = layer.weights.attr_tensor("value").shape
    return found if found is not None and shape[input_axis(node)] == len(found) else None
