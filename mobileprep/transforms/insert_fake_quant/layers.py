"""Find the tensors to fake quantize, where TensorFlow 1.15's ``tf.contrib.quantize`` does.

Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference" (2018), section 3, and the patterns of ``tf.contrib.quantize``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.freezing.trace import upstream, variable_behind
from mobileprep.graph.bypass import node_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, FUSED_BATCH_NORMS, SUMS
from mobileprep.graph.refs import Ref

LAYERS: Final = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul"})
_RELUS: Final = frozenset({"Relu", "Relu6"})
_ACTIVATIONS: Final = _RELUS | {"Identity"}
_BIASES: Final = SUMS | {"BiasAdd"}
_COMBINING: Final = SUMS | {"Mul"}
_FAKE_QUANTS: Final = frozenset(
    {
        "FakeQuantWithMinMaxVars",
        "FakeQuantWithMinMaxArgs",
        "FakeQuantWithMinMaxVarsPerChannel",
    }
)
# Ops whose outputs have the range of their input.
_PASSING: Final = frozenset(
    {"Reshape", "Identity", "BatchToSpaceND", "SpaceToBatchND", "MaxPool", "Max"}
)

Kind = Literal["weights", "activation", "other"]


class Place(Struct, frozen=True):
    """A tensor to fake quantize.

    Args:
        tensor: the tensor.
        prefix: prefix of the new nodes.
        kind: which bits, range, and initial values apply.
        layer: the layer whose weights these are; empty for other kinds.
        within: whether all consumers have to be in the scope, too.
    """

    tensor: Ref
    prefix: str
    kind: Kind
    layer: str = ""
    within: bool = False


class _Layer(Struct, frozen=True):
    """A layer, and the nodes after it: bias, sum with a bypass, activation, and another sum."""

    name: str
    bias: str = ""
    bypass: str = ""
    activation: str = ""
    last_bypass: str = ""


def weights_of(graph: Graph, layer: Node) -> Ref | None:
    """Return the weights of a float32 layer if they are variables, or products of such.

    In a loop, which weights enter, they have none: variables are outside of it.
    """
    if len(layer.data_inputs) < 2 or layer.attr_dtype("T", DType.FLOAT) is not DType.FLOAT:
        return None
    weights = layer.data_inputs[1]
    is_in_loop = any(node.op in ENTERS for node, _ in upstream(graph, weights))
    return weights if not is_in_loop and _is_weights(graph, weights) else None


def _is_weights(graph: Graph, ref: Ref) -> bool:
    node = node_behind(graph, ref)
    if node.op == "ConcatV2":  # a partitioned variable
        return all(variable_behind(graph, part) for part in node.data_inputs[:-1])
    return node.op == "Mul" or variable_behind(graph, ref) is not None


class Places:
    """The tensors to fake quantize, in the order of insertion.

    Args:
        graph: a graph whose batch normalizations are folded.
        folded: the layer of each sum that adds the offset of a folded batch normalization.
        scope: names of the nodes to quantize start with it.
    """

    def __init__(self, graph: Graph, folded: Mapping[str, str], scope: str) -> None:
        self._graph = graph
        self._folded = folded
        self._scope = scope if not scope or scope.endswith("/") else f"{scope}/"
        self._weights = {
            n.name: weights
            for n in graph
            if n.op in LAYERS and (weights := weights_of(graph, n)) is not None
        }
        self._places: dict[str, Place] = {}
        self._decided: set[str] = set()

    def find(self) -> list[Place]:
        """Return all places."""
        for layer in self._layers():
            self._add_layer(layer)
        for node in self._graph:
            if self._combines_quantized(node):
                self._add(node.name, f"{node.name}/activation_{node.op}_quant", "other")
        return list(self._places.values())

    def _add_layer(self, layer: _Layer) -> None:
        scope = _scope(layer.name)
        self._add_weights(layer.name, _within(scope, "weights_quant"))
        around = _scope(scope) if layer.bypass else scope
        if layer.activation:
            self._add(layer.activation, _within(around, "act_quant"), "activation")
            self._decided.add(layer.activation)
        if layer.bypass:
            if layer.bias:
                self._add(layer.bias, _within(scope, "conv_quant"), "other", within=True)
            self._decided.update((layer.bias, layer.bypass))
            if not self._feeds(layer.bypass, _ACTIVATIONS):
                self._add(layer.bypass, _within(around, "add_quant"), "other", within=True)
        if layer.last_bypass:
            self._decided.add(layer.last_bypass)
            if not self._feeds(layer.last_bypass, _RELUS):
                prefix = _within(_scope(layer.last_bypass), "post_activation_bypass_quant")
                self._add(layer.last_bypass, prefix, "other")

    def _add_weights(self, layer: str, prefix: str) -> None:
        weights = self._weights[layer]
        if self._consumers_in_scope(weights) and not self._is_quantized(weights):
            self._places[weights.node] = Place(weights, prefix, "weights", layer)

    def _add(self, name: str, prefix: str, kind: Kind, *, within: bool = False) -> None:
        tensor = Ref(name)
        if not name.startswith(self._scope) or self._is_quantized(tensor):
            return
        if not within or self._consumers_in_scope(tensor):
            self._places[name] = Place(tensor, prefix, kind)

    def _consumers_in_scope(self, tensor: Ref) -> bool:
        return all(n.name.startswith(self._scope) for n in self._consumers(tensor))

    def _consumers(self, tensor: Ref) -> Iterator[Node]:
        for node in self._graph.consumers.get(tensor.node, ()):
            if tensor in node.inputs:
                yield node

    def _feeds(self, name: str, ops: frozenset[str]) -> bool:
        return any(n.op in ops for n in self._consumers(Ref(name)))

    def _is_quantized(self, tensor: Ref) -> bool:
        """Return whether a tensor is fake quantized, directly or after it is reshaped."""
        waiting, seen = [tensor], {tensor}
        while waiting:
            here = waiting.pop()
            if here.node in self._places:
                return True
            for node in self._consumers(here):
                if node.op in _FAKE_QUANTS:
                    return True
                after = Ref(node.name)
                if node.op in ("Reshape", "Identity") and after not in seen:
                    seen.add(after)
                    waiting.append(after)
        return False

    def _layers(self) -> Iterator[_Layer]:
        """Yield each layer once, with as many of the nodes after it as possible."""
        matched: set[str] = set()
        matchers: tuple[Callable[[Node], _Layer | None], ...] = (
            self._with_last_bypass,
            self._with_activation,
            self._without_activation,
            self._into_layer,
        )
        for match in matchers:
            for node in self._graph:
                layer = match(node)
                if layer is not None and layer.name not in matched:
                    matched.add(layer.name)
                    yield layer

    def _is_estimate(self, node: Node) -> bool:
        """Return whether an Identity only passes a layer's output to a batch normalization."""
        consumers = list(self._consumers(Ref(node.name))) if node.op == "Identity" else []
        return len(consumers) == 1 and consumers[0].op in FUSED_BATCH_NORMS

    def _sources(self, node: Node) -> Iterator[Node]:
        for ref in node.data_inputs:
            if ref.node in self._graph:
                yield self._graph[ref.node]

    def _first(self, node: Node, match: Callable[[Node], _Layer | None]) -> _Layer | None:
        return next((m for n in self._sources(node) if (m := match(n)) is not None), None)

    def _layer(self, node: Node) -> _Layer | None:
        return _Layer(node.name) if node.name in self._weights else None

    def _layer_output(self, node: Node) -> _Layer | None:
        if node.op == "BatchToSpaceND" and node.data_inputs:
            return self._layer(self._graph[node.data_inputs[0].node])
        return self._layer(node)

    def _with_bias(self, node: Node) -> _Layer | None:
        if node.name in self._folded:
            return _Layer(self._folded[node.name], bias=node.name)
        layer = self._first(node, self._layer_output) if node.op in _BIASES else None
        return None if layer is None else replace(layer, bias=node.name)

    def _with_bias_and_identity(self, node: Node) -> _Layer | None:
        """Match a bias, or an Identity after that of a folded batch normalization."""
        if node.op == "Identity" and node.data_inputs and node.data_inputs[0].node in self._folded:
            return self._with_bias(self._graph[node.data_inputs[0].node])
        return self._with_bias(node)

    def _with_bypass(self, node: Node) -> _Layer | None:
        layer = self._first(node, self._with_bias_and_identity) if node.op in SUMS else None
        return None if layer is None else replace(layer, bypass=node.name)

    def _with_activation(self, node: Node) -> _Layer | None:
        if node.op not in _ACTIVATIONS or self._is_estimate(node):
            return None
        for match in (self._with_bias_and_identity, self._with_bypass, self._layer):
            layer = self._first(node, match)
            if layer is not None:
                return replace(layer, activation=node.name)
        return None

    def _with_last_bypass(self, node: Node) -> _Layer | None:
        # If both inputs are activations, the original chooses the second.
        sources = list(self._sources(node)) if node.op in SUMS else []
        layers = (self._with_activation(source) for source in reversed(sources))
        layer = next((layer for layer in layers if layer is not None), None)
        return None if layer is None else replace(layer, last_bypass=node.name)

    def _without_activation(self, node: Node) -> _Layer | None:
        layer = self._with_bias(node)
        return None if layer is None else _Layer(layer.name, activation=node.name)

    def _into_layer(self, node: Node) -> _Layer | None:
        layer = self._first(node, self._layer_output) if node.op in LAYERS else None
        return None if layer is None else replace(layer, activation=layer.name)

    def _combines_quantized(self, node: Node) -> bool:
        """Return whether an Add or Mul combines a fake quantized tensor with another one."""
        waiting, seen = [node], {node.name}
        while waiting:
            here = waiting.pop()
            if here.op not in _COMBINING or here.name in self._decided:
                continue
            consumers = list(self._consumers(Ref(here.name)))
            if len(consumers) == 1 and consumers[0].op in _RELUS:
                continue
            for source in map(self._unpassed, here.data_inputs):
                if source is None:
                    return True
                inner = [n for n in self._sources(source) if n.name not in seen]
                if source.op in _COMBINING:
                    seen.update(n.name for n in inner)
                    waiting += inner
        return False

    def _unpassed(self, ref: Ref) -> Node | None:
        """Return the node behind ops that pass on a range; None if it is fake quantized."""
        seen: set[str] = set()
        while ref.node not in seen:
            seen.add(ref.node)
            node = self._graph[ref.node]
            if ref.node in self._places or node.op in _FAKE_QUANTS:
                return None
            if node.op not in _PASSING or not node.data_inputs:
                break
            ref = node.data_inputs[0]
        return node


def _scope(name: str) -> str:
    return name.rpartition("/")[0]


def _within(scope: str, name: str) -> str:
    return f"{scope}/{name}" if scope else name
