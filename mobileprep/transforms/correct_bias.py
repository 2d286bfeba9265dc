"""Correct biases for the shift in channel means that weight rounding causes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.graph.bypass import IDENTITIES, node_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.reachability import closure, execution_order, reachable
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.statistics import (
    NO_STATISTICS,
    NO_STATISTICS_HINT,
    ChannelStatistics,
    statistics_of,
    without_statistics,
)
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.graph.verify import check_inputs
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.sampling.data_files import feeds_from_file
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.rewriting.clipping import eightbit_constant, range_with_zero, rounded
from mobileprep.transforms.rewriting.layers import (
    Biased,
    BiasedLayer,
    channel_axis,
    input_axis,
    layout,
    linear_weights,
    output_axis,
    replaced,
    shifted,
    through,
    weight_axes,
    with_biases,
)

# The number of bits that quantize_weights stores.
_WHOLE_BITS: Final = 8


@transform("correct_bias")
class CorrectBias(Transform, frozen=True):
    """Correct biases for the shift in channel means that rounded weights will cause.

    Run it before quantization: the weights stay float and are rounded only to measure the effect.
    Both versions come from the same graph, and ranges that are measured afterwards match the biases
    that ship.

    With data, means are measured. Without, the mean of a layer's input is derived from the
    statistics that fuse_batch_norms stores; it is unknown if no normalization precedes the layer.

    Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction
    (2019), section 4.2.
    """

    summary = (
        "Shifts the biases of layers by the change of each channel's mean that "
        "quantizing the weights will cause. Use it before quantization."
    )

    data: Annotated[
        str | None,
        Option(
            "A .npz file with an array of samples for each input, to measure the means on. "
            "Without it, they are those of batch normalizations, which fuse_batch_norms keeps with "
            "keep_statistics.",
            min_length=1,
            format="path",
        ),
    ] = None
    samples: Annotated[
        int, Option("Number of samples, spread evenly over the file.", minimum=1)
    ] = 64
    bits: Annotated[
        int, Option("Number of bits in which the weights will be stored.", minimum=2, maximum=8)
    ] = 8
    granularity: Annotated[
        Literal["tensor", "channel"],
        Option(
            "tensor: the weights will have one range, as with quantize_weights and "
            "quantize_nodes. channel: one for each channel, as with "
            "linear_quantize_weights."
        ),
    ] = "tensor"
    minimum_size: Annotated[
        int,
        Option(
            "Weights with fewer elements will stay float. For quantize_nodes, which "
            "rounds all, use 0.",
            minimum=0,
        ),
    ] = 1024

    def apply(self, graph: Graph, context: Context) -> Result:
        """Correct the biases of all layers whose weights will be rounded."""
        check_inputs(graph, "")
        biased = self._biased(graph, context)
        if not biased.layers:
            return Result(without_statistics(graph))
        if self.data is None:
            return self._by_statistics(graph, biased)
        runs = feeds_from_file(graph, context.inputs, Path(self.data), self.samples)
        done = empirically_corrected(biased, self._all_rounded(biased), runs)
        return Result(without_statistics(done), len(biased.layers), Counter())

    def _by_statistics(self, graph: Graph, biased: Biased) -> Result:
        means = channel_means(biased.graph)
        if not means:
            raise refuse(self.transform_name, NO_STATISTICS, NO_STATISTICS_HINT)
        done, corrected = analytically_corrected(biased, self._all_rounded(biased), means)
        remaining = len(biased.layers) - corrected
        skipped = Counter({"the mean of its input is not known": remaining} if remaining else {})
        return Result(without_statistics(done if corrected else graph), corrected, skipped)

    def _all_rounded(self, biased: Biased) -> dict[str, Node]:
        weights = {layer.weights.name: layer.weights for layer in biased.layers}
        return {name: self._rounded(biased.graph, node) for name, node in weights.items()}

    def _biased(self, graph: Graph, context: Context) -> Biased:
        """Add biases to the layers that the outputs need and whose weights will be rounded."""
        ends = [parse_ref(name).node for name in context.outputs]
        needed = reachable(graph, [e for e in ends if e in graph]) if ends else graph.by_name

        def needs_bias(layer: Node, weights: Node) -> bool:
            size = weights.attr_tensor("value").size
            return layer.name in needed and size >= max(self.minimum_size, 1)

        return with_biases(graph, needs_bias, context.protected)

    def _rounded(self, graph: Graph, weights: Node) -> Node:
        """Return the weights with their values after quantization."""
        values = weights.attr_tensor("value").array()
        if self.granularity == "channel":
            back = linear_weights(values, weight_axes(graph, weights), self.bits).decoded()
        elif self.bits == _WHOLE_BITS and (stored := eightbit_constant(values)) is not None:
            back = stored.decoded()
        else:
            back = rounded(values, range_with_zero(values), self.bits)
        tensor = Tensor.of(back.astype(values.dtype))
        return constant(weights.name, tensor, weights.device, weights.inputs)


_ACTIVATIONS: Final = {"Relu": math.inf, "Relu6": 6.0}
_SUMS: Final = frozenset({"Add", "AddV2"})
# Zero borders hardly affect a channel's mean; the paper ignores them as well.
_KEEPING: Final = IDENTITIES | {"AvgPool", "Pad"}


class _Clipped(Struct, frozen=True):
    """Normally distributed channels, clipped at both ends.

    Args:
        before: statistics before clipping.
        low: lower bound of all channels.
        high: upper bound of each channel; float64 [channels].
    """

    before: ChannelStatistics
    low: float
    high: Array

    @property
    def means(self) -> Array:
        return clipped_means(self.before, self.low, self.high)


def channel_means(graph: Graph) -> dict[str, Array]:
    """Return the channel means of node outputs with channels last, by node name.

    The output of a normalization is assumed to be normally distributed, as in section 4.2.1 and
    appendix C of the paper. Means are known for BiasAdd with statistics, for Relu, Relu6, and
    Minimum after it, for sums of tensors with known means, and for ops that average these over
    height and width.
    """
    return _Search(graph).run()


class _Search:
    """One traversal of the graph in execution order."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._clipped: dict[str, _Clipped] = {}
        self._means: dict[str, Array] = {}

    def run(self) -> dict[str, Array]:
        for node in execution_order(self._graph):
            clipped = self._clipped_of(node)
            if clipped is not None:
                self._clipped[node.name] = clipped
            means = self._means_of(node) if clipped is None else clipped.means
            if means is not None:
                self._means[node.name] = means
        return self._means

    def _clipped_of(self, node: Node) -> _Clipped | None:
        if node.op == "BiasAdd":
            return self._normal(node)
        inputs = [self._clipped.get(_source(r)) for r in node.data_inputs]
        if node.op in _ACTIVATIONS and inputs and inputs[0] is not None:
            high = np.minimum(inputs[0].high, _ACTIVATIONS[node.op])
            return replace(inputs[0], low=max(inputs[0].low, 0.0), high=np.maximum(high, 0))
        if node.op == "Minimum" and len(inputs) == 2:
            return self._bounded(node, inputs[0], 1) or self._bounded(node, inputs[1], 0)
        return None

    def _normal(self, node: Node) -> _Clipped | None:
        if len(node.data_inputs) < 2 or channel_axis(node) != len(layout(node)) - 1:
            return None
        bias = node_behind(self._graph, node.data_inputs[1])
        channels = bias.attr_tensor("value").size if bias.op == "Const" else 0
        stats = statistics_of(node, channels)
        return None if stats is None else _Clipped(stats, -math.inf, np.full(channels, math.inf))

    def _bounded(self, node: Node, clipped: _Clipped | None, constant: int) -> _Clipped | None:
        if clipped is None:
            return None
        bound = self._per_channel(node.data_inputs[constant], len(clipped.high))
        if bound is None or (bound < clipped.low).any():
            return None
        return replace(clipped, high=np.minimum(clipped.high, bound))

    def _per_channel(self, ref: Ref, channels: int) -> Array | None:
        """Return a constant as one value per last-dimension channel, or None if it does not fit."""
        node = node_behind(self._graph, ref)
        if node.op != "Const":
            return None
        value = node.attr_tensor("value")
        is_one = value.size == 1
        fits = is_one or (value.size == channels and value.shape[-1:] == (channels,))
        if not value.dtype.is_floating or not fits:
            return None
        elements = value.array().astype(np.float64).reshape(-1)
        return np.broadcast_to(elements, (channels,)) if np.isfinite(elements).all() else None

    def _means_of(self, node: Node) -> Array | None:
        of = [self._means.get(_source(r)) for r in node.data_inputs]
        if not of:
            return None
        if node.op in _SUMS and len(of) == 2:
            return self._sum(node, of[0], of[1])
        if of[0] is None:
            return None
        return of[0] if self._keeps_channels(node, len(of[0])) else None

    def _keeps_channels(self, node: Node, channels: int) -> bool:
        """Return whether a node only averages over height and width, or reshapes other axes."""
        if node.op == "Mean":
            axes = _whole_numbers(self._graph, node)
            return bool(axes) and set(axes) <= {1, 2}
        if node.op == "Reshape":
            return _whole_numbers(self._graph, node)[-1:] == [channels]
        if node.op == "Squeeze":
            return channels > 1 and -1 not in node.attr_ints("squeeze_dims", ())
        return node.op in _KEEPING

    def _sum(self, node: Node, left: Array | None, right: Array | None) -> Array | None:
        if left is not None and right is not None:
            return left + right if left.shape == right.shape else None
        term, other = (left, 1) if left is not None else (right, 0)
        if term is None:
            return None
        more = self._per_channel(node.data_inputs[other], len(term))
        return None if more is None else term + more


def _whole_numbers(graph: Graph, node: Node) -> list[int]:
    """Return the elements of the second input if it is an integer constant, or an empty list."""
    if len(node.data_inputs) < 2:
        return []
    constant = node_behind(graph, node.data_inputs[1])
    if constant.op != "Const":
        return []
    value = constant.attr_tensor("value")
    elements = value.array().reshape(-1)
    return [int(element) for element in elements] if elements.dtype.kind == "i" else []


def _source(ref: Ref) -> str:
    return "" if ref.index else ref.node


def clipped_means(statistics: ChannelStatistics, low: float, high: Array | float) -> Array:
    """Return the means of normally distributed channels that are clipped at both ends.

    Returns:
        float64 [channels]. With ``a`` and ``b`` the ends in deviations from the mean, that is ``low
        * P(a) + high * (1 - P(b)) + mean * (P(b) - P(a)) + deviation * (p(a) - p(b))``, where ``p``
        is the density of the standard normal distribution and ``P`` its cumulative distribution
        function.
    """
    ends = np.broadcast_to(high, statistics.means.shape)
    channels = zip(statistics.means, statistics.deviations, ends, strict=True)
    return np.array(
        [_clipped_mean(float(m), float(d), low, float(high)) for m, d, high in channels]
    )


def _clipped_mean(mean: float, deviation: float, low: float, high: float) -> float:
    if deviation <= 0:
        return min(max(mean, low), high)
    a, b = (low - mean) / deviation, (high - mean) / deviation
    below, above = _share_below(a), _share_below(-b)
    between = mean * (1 - below - above) + deviation * (_density(a) - _density(b))
    at_ends = (low * below if below else 0.0) + (high * above if above else 0.0)
    return between + at_ends


def _share_below(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def _density(x: float) -> float:
    return math.exp(-min(x * x, 1e4) / 2) / math.sqrt(2 * math.pi)


_APPLIED_EVENLY: Final = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul"})


def analytically_corrected(
    biased: Biased, rounded: Mapping[str, Node], means: Mapping[str, Array]
) -> tuple[Graph, int]:
    """Return the graph with biases that preserve the float channel means.

    Args:
        biased: the graph and its layers.
        rounded: rounded weights, by name of the float weights.
        means: channel means of node outputs; float64 [channels].

    Returns:
        The graph, and the number of corrected layers.
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
    """Return the mean of each input channel of a layer, or None if unknown."""
    node, ref = layer.layer, layer.layer.data_inputs[0]
    if node.op not in _APPLIED_EVENLY or ref.index or output_axis(node) != -1:
        return None
    if node.attr_bool("transpose_a", False):
        return None
    mean = means.get(ref.node)
    shape = layer.weights.attr_tensor("value").shape
    return mean if mean is not None and shape[input_axis(node)] == len(mean) else None


Runs = Sequence[Mapping[str, Array]]
"""Inputs of the graph, one mapping per run."""


def empirically_corrected(biased: Biased, rounded: Mapping[str, Node], runs: Runs) -> Graph:
    """Return the graph with biases that preserve the float channel means measured on ``runs``.

    Outputs of a layer are cached for all runs while later layers need them, so each layer runs once
    with float weights and once with rounded ones.
    """
    expected = _float_means(biased, runs)
    now = replaced(biased.graph, rounded)
    names = [layer.layer.name for layer in biased.layers]
    last = last_uses(biased.graph, names)
    fed: list[dict[str, Array]] = [dict(run) for run in runs]
    corrected: dict[str, Node] = {}
    for at, layer in enumerate(biased.layers):
        interpreter = Interpreter(now)
        outputs = [interpreter.run([names[at]], feeds)[0] for feeds in fed]
        shift = expected[at] - _empirical_mean(outputs, layer)
        bias = corrected[layer.bias.name] = shifted(layer.bias, shift)
        now = replaced(now, {bias.name: bias})
        for feeds, output in zip(fed, outputs, strict=True):
            feeds[names[at]] = output
            for name in [n for n in feeds if last.get(n, len(names)) <= at]:
                del feeds[name]
    return replaced(biased.graph, corrected)


def _float_means(biased: Biased, runs: Runs) -> list[Array]:
    """Return the mean of each output channel over all runs, per layer."""
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


def _empirical_mean(outputs: Sequence[Array], layer: BiasedLayer) -> Array:
    lines = [_by_channel(output, layer) for output in outputs]
    total: Array = sum(part.sum(axis=0, dtype=np.float64) for part in lines)
    return total / max(sum(map(len, lines)), 1)


def _by_channel(output: Array, layer: BiasedLayer) -> Array:
    """Reshape to [elements per channel, channels]."""
    return np.moveaxis(output, layer.axis, -1).reshape(-1, layer.channels)


def last_uses(graph: Graph, layers: Sequence[str]) -> dict[str, int]:
    """Return the index of the last layer that directly uses each layer's output."""
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
