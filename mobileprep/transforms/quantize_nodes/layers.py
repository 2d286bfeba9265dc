"""Layers with 8-bit weights and inputs, whose 32-bit sums are converted to floats.

The original requantizes a layer's sums to 8 bits before adding the bias, which is also in 8 bits.
Here the sums are dequantized directly, and bias and activation are computed in floats, so only a
layer's input and its weights are rounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

import numpy as np
from msgspec import Struct

import mobileprep.transforms.quantize_nodes.nodes as make
from mobileprep.formats.dtypes import DType
from mobileprep.graph.control_flow import loop_nodes
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.reachability import without_newly_unused
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.base import Context, Result
from mobileprep.transforms.quantize_nodes.eightbit_tensors import EightbitTensors, Ports
from mobileprep.transforms.quantize_nodes.layer_choice import (
    Layer,
    LayerChoice,
    stored_though,
)
from mobileprep.transforms.quantize_nodes.rules import eightbit_attrs
from mobileprep.transforms.quantize_nodes.tensor_ranges import TensorRanges
from mobileprep.transforms.quantize_nodes.weights import QuantizedWeights
from mobileprep.transforms.rewriting.layers import data_input, layer_kind

MEASURED: Final = "its range is not known, so that it is measured when the graph runs"
_NARROW: Final = "the range of its input is narrower than 0.01, the least that QuantizeV2 has"
_TO_FLOATS: Final = {"T": make.QINT32, "mode": make.MIN_FIRST}


def quantize_layers(
    graph: Graph,
    choice: LayerChoice,
    ranges: TensorRanges,
    context: Context,
    *,
    warn: bool,
    carrying: Collection[str] = (),
) -> Result:
    """Quantize the chosen layers.

    Args:
        warn: whether to warn about tensors without a known range.
        carrying: additional ops that can compute in 8 bits, see ``EightbitTensors``.
    """
    done = _Layers(graph, choice, ranges, context, carrying)
    nodes: list[Node] = []
    for node in graph:
        nodes += done.nodes(node)
    stored = sum(choice.layers[name].is_worth_storing for name in done.narrow)
    unchanged = len(done.narrow) - stored
    skipped = choice.skipped + Counter({_NARROW: unchanged, stored_though(_NARROW): stored})
    matched = len(choice.layers) - unchanged
    if not matched:
        return Result(graph, skipped=+skipped)
    after = without_newly_unused(graph, graph.with_nodes(nodes), context.protected)
    measured = done.tensors.measured if warn else []
    skipped[MEASURED] += len(measured)
    return Result(after, matched, +skipped, _warnings(measured))


def _warnings(measured: list[str]) -> tuple[str, ...]:
    if not measured:
        return ()
    more = f" and {len(measured) - 3} more" if len(measured) > 3 else ""
    names = ", ".join(repr(name) for name in measured[:3])
    return (f"no range is known of {names}{more}: measured each time the graph runs",)


class _Layers:
    """Builder of the nodes of one graph's layers."""

    def __init__(
        self,
        graph: Graph,
        choice: LayerChoice,
        ranges: TensorRanges,
        context: Context,
        carrying: Collection[str],
    ) -> None:
        self._layers = choice.layers
        self._in_loops = loop_nodes(graph)
        self._quantized: dict[tuple[object, ...], QuantizedWeights] = {}
        computing = {
            name: self._weights(choice.layers[name]).scales is None
            for name in sorted(choice.computing)
        }
        self.tensors = EightbitTensors(
            graph, ranges, computing, context.protected, self._in_loops, carrying
        )
        self.narrow = frozenset(
            name for name in computing if self.tensors.narrow(graph[name].data_inputs[0])
        )
        for name in self.narrow:
            del computing[name]
        self._stored: dict[tuple[object, ...], _Stored] = {}

    def nodes(self, node: Node) -> list[Node]:
        """Return the replacement of a node."""
        layer = self._layers.get(node.name)
        is_narrow = node.name in self.narrow
        if layer is None or (is_narrow and not layer.is_worth_storing):
            return [node]
        computes = layer.computes and not is_narrow
        replacement = self._computing(layer) if computes else self._storing(layer)
        return [*self.tensors.take_new(), *replacement]

    def _computing(self, layer: Layer) -> list[Node]:
        node = layer.node
        value, low, high = self.tensors.quantized(node.data_inputs[0])
        stored = self._stored_weights(layer)
        inputs = (value, stored.ports[0], low, high, *stored.ports[1:], *node.control_inputs)
        main = Node(
            self.tensors.main(node.name),
            f"Quantized{node.op}",
            inputs,
            node.device,
            eightbit_attrs(node),
        )
        sums = make.ports(main.name)
        if stored.scales is None:
            return [main, Node(node.name, "Dequantize", sums, node.device, _TO_FLOATS)]
        name = self.tensors.name(f"{main.name}/floats")
        floats = Node(name, "Dequantize", sums, node.device, _TO_FLOATS)
        scaled = (Ref(floats.name), stored.scales)
        return [main, floats, Node(node.name, "Mul", scaled, node.device, {"T": make.FLOAT})]

    def _storing(self, layer: Layer) -> list[Node]:
        """Return the float layer with weights that are dequantized at run time."""
        node = layer.node
        stored = self._stored_weights(layer, spread=True)
        name = self.tensors.name(f"{node.name}/weights")
        nodes = [make.dequantize(name, stored.ports)]
        if stored.scales is not None:
            inputs = (Ref(name), stored.scales)
            name = self.tensors.name(f"{node.name}/scaled_weights")
            nodes.append(Node(name, "Mul", inputs, attrs={"T": make.FLOAT}))
        changed = (node.inputs[0], Ref(name), *node.inputs[2:])
        return [*nodes, node.with_inputs(changed)]

    def _weights(self, layer: Layer) -> QuantizedWeights:
        """Return the weights of a layer in 8 bits, cached for layers with the same weights."""
        key = _alike(layer)
        if key not in self._quantized:
            self._quantized[key] = layer.weights.quantized(layer.node, layer.settings.weights)
        return self._quantized[key]

    def _stored_weights(self, layer: Layer, *, spread: bool = False) -> _Stored:
        """Return the constants of a layer's weights, cached for layers with the same weights.

        Args:
            spread: whether the scales are laid out along the weights' own axes.
        """
        beside = layer.node.data_inputs[data_input(layer.node)]
        tied = beside.node if beside.node in self._in_loops else ""
        axes = layer_kind(layer.node).channels
        key = (*_alike(layer), tied, spread)
        if key not in self._stored:
            weights = self._weights(layer)
            shape = _spread_shape(weights, axes) if spread else (-1,)
            self._stored[key] = self._constants(layer.weights.name, weights, shape, beside)
        return self._stored[key]

    def _constants(
        self, name: str, weights: QuantizedWeights, shape: tuple[int, ...], beside: Ref
    ) -> _Stored:
        prefix = f"{name}_eightbit"

        def keep(part: str, tensor: Tensor) -> Ref:
            return self.tensors.constant(f"{prefix}/{part}", constant("", tensor), beside)

        ports = (
            keep("values", Tensor.packed(weights.values, DType.QUINT8)),
            keep("min", Tensor.packed(np.asarray(weights.steps.low, np.float32))),
            keep("max", Tensor.packed(np.asarray(weights.steps.high, np.float32))),
        )
        if weights.scales is None:
            return _Stored(ports, None)
        return _Stored(ports, keep("scales", Tensor.packed(weights.scales.reshape(shape))))


class _Stored(Struct, frozen=True):
    """Constants of weights: integers, the ends of their range, and the channel scales."""

    ports: Ports
    scales: Ref | None


def _spread_shape(weights: QuantizedWeights, axes: tuple[int, ...]) -> tuple[int, ...]:
    rank = weights.values.ndim
    return tuple(size if i - rank in axes else 1 for i, size in enumerate(weights.values.shape))


def _alike(layer: Layer) -> tuple[object, ...]:
    """Return the cache key of the 8-bit form of a layer's weights."""
    return layer.weights.name, layer_kind(layer.node).channels, layer.settings.weights
