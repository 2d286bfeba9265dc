"""Layers with 8-bit weights and inputs, whose 32-bit sums are converted to floats.

The original requantizes a layer's sums to 8 bits before adding the bias, which is also in 8 bits.
Here the sums are dequantized directly, and bias and activation are computed in floats, so only a
layer's input and its weights are rounded. Each float tensor is quantized once, and stays in 8 bits
across ops where possible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
from msgspec import Struct

import mobileprep.transforms.quantize_nodes.nodes as make
from mobileprep.formats.dtypes import DType
from mobileprep.graph.bypass import IDENTITIES
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.reachability import closure, loop_nodes, without_newly_unused
from mobileprep.graph.refs import Edge, FreshNames, Ref, control, edge
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.base import Context, Result
from mobileprep.transforms.quantize_nodes.eightbit_ops import eightbit_attrs, reason_to_stay_float
from mobileprep.transforms.quantize_nodes.layer_choice import (
    Layer,
    LayerChoice,
    Rules,
    choose_layers,
    stored_though,
)
from mobileprep.transforms.quantize_nodes.nodes import QUINT8, EvenSteps
from mobileprep.transforms.quantize_nodes.ranges import TensorRanges
from mobileprep.transforms.quantize_nodes.weights import QuantizedWeights
from mobileprep.transforms.rewriting.layers import data_input, layer_kind

Ports = tuple[Ref, Ref, Ref]

_MOVING: Final = IDENTITIES | {"ExpandDims", "Reshape", "Squeeze"}
CARRYING: Final = _MOVING | {"ConcatV2", "MaxPool", "Relu", "Relu6"}
"""Ops that can compute in 8 bits if no consumer needs their float results."""

PADS: Final = frozenset({"MirrorPad", "Pad"})
"""Ops with the same property in releases that have the kernels."""

_MOST: Final = {"Relu": float("inf"), "Relu6": 6.0}
# Less than the rounding of a range's end: one step is 1/255 of the range.
_ROUNDING: Final = 1e-4
# QuantizeV2 widens narrower ranges to this width.
_NARROWEST: Final = 0.01


class EightbitTensors:
    """8-bit forms of the float tensors of one graph.

    Args:
        graph: the float graph.
        ranges: known ranges of its tensors.
        computing: the layers that compute in 8 bits, and whether the 32-bit results of each can be
            requantized directly.
        protected: names of nodes that must not be removed.
        in_loops: the nodes of loops, see ``loop_nodes``.
        carrying: additional ops from ``PADS`` that can compute in 8 bits.
    """

    def __init__(
        self,
        graph: Graph,
        ranges: TensorRanges,
        computing: dict[str, bool],
        protected: Collection[str],
        in_loops: Collection[str],
        carrying: Collection[str] = (),
    ) -> None:
        self._graph = graph
        self._ranges = ranges
        self._computing = computing
        self._protected = protected
        self._in_loops = in_loops
        self._carrying = carrying
        self._names = FreshNames(graph.by_name)
        self._ports: dict[tuple[Ref, EvenSteps | None], Ports] = {}
        self._mains: dict[str, str] = {}
        self._only_eightbit: dict[str, bool] = {}
        self._new: list[Node] = []
        self.measured: list[str] = []
        """Names of the tensors whose range is measured when the graph runs."""

    def name(self, base: str) -> str:
        """Return a name that is unused in the graph."""
        return self._names.name(base)

    def main(self, layer: str) -> str:
        """Return the name of the node with a layer's 32-bit results."""
        if layer not in self._mains:
            self._mains[layer] = self.name(f"{layer}/eightbit")
        return self._mains[layer]

    def take_new(self) -> list[Node]:
        """Return the nodes created since the last call."""
        new, self._new = self._new, []
        return new

    def constant(self, base: str, node: Node, beside: Ref) -> Ref:
        """Create a constant in the same loop as a tensor.

        Args:
            base: its name, or a prefix of it.
            node: the constant to copy.
            beside: the tensor.
        """
        inputs = (control(beside.node),) if beside.node in self._in_loops else ()
        copy = Node(self.name(base), node.op, inputs, node.device, node.attrs)
        self._new.append(copy)
        return Ref(copy.name)

    def narrow(self, ref: Ref) -> bool:
        """Return whether a tensor's range is narrower than the kernel supports."""
        quantization = self._ranges.quantization(ref)
        return (
            quantization is not None
            and quantization.steps.high - quantization.steps.low < _NARROWEST
        )

    def quantized(self, ref: Ref) -> Ports:
        """Return the 8-bit form of a tensor: its integers, and the ends of their range."""
        ref = Ref(ref.node, ref.index)
        if (ref, None) not in self._ports:
            self._ports[(ref, None)] = self._quantized(ref)
        return self._ports[(ref, None)]

    def _quantized(self, ref: Ref) -> Ports:
        node = self._graph[ref.node]
        eightbit = _eightbit_inputs(node)
        if eightbit is not None:
            return eightbit
        quantization = self._ranges.quantization(ref)
        if self._passes(node):
            carried = self._carried(node, None if quantization is None else quantization.steps)
            if carried is not None:
                return carried
        if quantization is None:
            return self._measured(ref)
        return self._by_steps(quantization.tensor, quantization.steps)

    def _carried(self, node: Node, steps: EvenSteps | None) -> Ports | None:
        """Return a node's result computed in 8 bits, or None if that is not possible."""
        source = node.data_inputs[0]
        if node.op in _MOST:
            cut = steps is not None and _cuts(steps, node)
            return self._by_steps(source, steps) if steps is not None and cut else None
        if node.op == "ConcatV2":
            return None if steps is None else self._joined(node, steps)
        if node.op in PADS:
            return self._padded(node, steps)
        if steps is not None and self._ranges.quantization(source) is None:
            return None
        value, low, high = self.quantized(source)
        name = self.name(f"{node.name}/eightbit")
        if node.op == "MaxPool":
            attrs = eightbit_attrs(node)
            self._new.append(Node(name, "QuantizedMaxPool", (value, low, high), attrs=attrs))
            return make.port(name, 0), low, high
        attrs = {**node.attrs, "T": QUINT8}
        self._new.append(Node(name, node.op, (value, *node.inputs[1:]), attrs=attrs))
        return make.port(name, 0), low, high

    def _padded(self, node: Node, steps: EvenSteps | None) -> Ports:
        source = node.data_inputs[0]
        if steps is None or self._ranges.quantization(source) is not None:
            ports = self.quantized(source)
        else:
            # Padding with zeros does not change a range that contains zero.
            ports = self._by_steps(self._before_cut(source, steps), steps)
        name = self.name(f"{node.name}/eightbit")
        attrs = {**node.attrs, "T": QUINT8}
        if node.op == "MirrorPad":
            self._new.append(Node(name, node.op, (ports[0], node.inputs[1]), attrs=attrs))
        else:
            zero = self._zero(name, source, ports)
            self._new.append(Node(name, "PadV2", (ports[0], node.inputs[1], zero), attrs=attrs))
        return make.port(name, 0), *ports[1:]

    def _zero(self, prefix: str, source: Ref, ports: Ports) -> Ref:
        """Return the integer that represents 0.0 in a quantized tensor."""
        zero = self.constant(f"{prefix}/zero", make.scalar("", 0.0), source)
        inputs = (zero, *ports[1:])
        name = self.name(f"{prefix}/zero_point")
        self._new.append(Node(name, "QuantizeV2", inputs, attrs=make.CONVERSION))
        return make.port(name, 0)

    def _joined(self, node: Node, steps: EvenSteps) -> Ports:
        parts = [self._by_steps(self._before_cut(r, steps), steps) for r in node.data_inputs[:-1]]
        name = self.name(f"{node.name}/eightbit")
        inputs = (*(part[0] for part in parts), node.data_inputs[-1])
        self._new.append(Node(name, node.op, inputs, attrs={**node.attrs, "T": QUINT8}))
        return make.port(name, 0), *parts[0][1:]

    def _before_cut(self, ref: Ref, steps: EvenSteps) -> Ref:
        """Return the input of an activation if clipping to ``steps`` replaces it, or ``ref``."""
        node = self._graph[ref.node]
        needless = node.op in _MOST and self._passes(node) and _cuts(steps, node)
        return node.data_inputs[0] if needless else ref

    def _passes(self, node: Node) -> bool:
        """Return whether a node can compute in 8 bits and only 8-bit consumers need its result."""
        if node.control_inputs or not node.data_inputs or not self._is_only_eightbit(node):
            return False
        if node.op == "ConcatV2":
            return all(self._is_alone(r, node) for r in node.data_inputs[:-1])
        if node.op == "MaxPool":
            return not reason_to_stay_float(node)
        return node.op in _MOVING or node.op in _MOST or node.op in self._carrying

    def _is_only_eightbit(self, node: Node) -> bool:
        if node.name not in self._only_eightbit:
            # Stops the recursion when a loop leads back to the node.
            self._only_eightbit[node.name] = False
            consumers = self._graph.consumers.get(node.name, ())
            self._only_eightbit[node.name] = node.name not in self._protected and all(
                self._takes(consumer, node.name) for consumer in consumers
            )
        return self._only_eightbit[node.name]

    def _takes(self, consumer: Node, name: str) -> bool:
        """Return whether a node only needs the 8-bit form of another node's result."""
        places = [i for i, r in enumerate(consumer.inputs) if r.node == name]
        if consumer.op == "ConcatV2":
            whole = places and max(places) < len(consumer.data_inputs) - 1
            return bool(whole) and self._passes(consumer)
        if places != [0] or consumer.inputs[0].is_control:
            return False
        return consumer.name in self._computing or self._passes(consumer)

    def _is_alone(self, ref: Ref, consumer: Node) -> bool:
        """Return whether no other 8-bit layer uses a tensor, which would quantize it again."""
        others = self._graph.consumers.get(ref.node, ())
        return all(n is consumer or n.name not in self._computing for n in others)

    def _by_steps(self, ref: Ref, steps: EvenSteps) -> Ports:
        ref = Ref(ref.node, ref.index)
        if (ref, steps) in self._ports:
            return self._ports[(ref, steps)]
        prefix = f"{_as_name(ref)}_eightbit"
        low = self.constant(f"{prefix}/min", make.scalar("", steps.low), ref)
        high = self.constant(f"{prefix}/max", make.scalar("", steps.high), ref)
        name = self.name(f"{prefix}/quantize")
        if self._computing.get(ref.node, False):
            self._new.append(make.requantize(name, self.main(ref.node), low, high))
        else:
            self._new.append(make.quantize(name, ref, low.node, high.node))
        self._ports[(ref, steps)] = make.ports(name)
        return self._ports[(ref, steps)]

    def _measured(self, ref: Ref) -> Ports:
        """Return a tensor in 8 bits with its range measured when the graph runs."""
        self.measured.append(str(ref))
        prefix = f"{_as_name(ref)}_eightbit"
        tied = ref.node in self._in_loops
        nodes = make.quantized_input(self._names, prefix, ref, tied=tied, with_zero=True)
        self._new += nodes
        return make.ports(nodes[-1].name)


def _cuts(steps: EvenSteps, activation: Node) -> bool:
    """Return whether quantizing with ``steps`` clips at or below the activation's bounds."""
    return steps.zero == 0 and steps.high <= _MOST[activation.op] * (1 + _ROUNDING)


def _eightbit_inputs(node: Node) -> Ports | None:
    """Return the inputs of a Dequantize that are compatible 8-bit numbers, or None."""
    if node.op != "Dequantize" or len(node.data_inputs) != 3 or node.control_inputs:
        return None
    is_same = node.attr_dtype("T") is DType.QUINT8 and node.attr_str("mode", "") == "MIN_FIRST"
    value, low, high = node.data_inputs
    return (value, low, high) if is_same else None


def _as_name(ref: Ref) -> str:
    return f"{ref.node}__port__{ref.index}" if ref.index else ref.node


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


_OF_ITS_INPUT: Final = CARRYING | IDENTITIES


def ranged_tensors(
    graph: Graph, ignored: Collection[str] = (), rules: Collection[str] = ()
) -> tuple[Edge, ...]:
    """Return the inputs of 8-bit layers, and the tensors that they are derived from in 8 bits.

    Args:
        graph: the float graph.
        ignored: ops that stay float.
        rules: quantization rules, see ``Rules``.

    Returns:
        Tensors in graph order, without constants.
    """
    read = Rules("quantize_nodes", tuple(rules))
    choice = choose_layers(graph, read, frozenset(ignored), trained=False)
    roots = [edge(graph[name].data_inputs[0]) for name in sorted(choice.computing)]

    def sources(tensor: Edge) -> Iterator[Edge]:
        node = graph.get(tensor[0])
        if node is not None and node.op in _OF_ITS_INPUT:
            yield from map(edge, node.data_inputs)

    tensors = closure(roots, sources)
    places = {node.name: place for place, node in enumerate(graph)}
    computed = (t for t in tensors if t[0] in places and graph[t[0]].op != "Const")
    return tuple(sorted(computed, key=lambda t: (places[t[0]], t[1])))
