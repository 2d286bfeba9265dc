"""Layers with the constants that are added to their channels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph.bypass import node_behind
from mobileprep.graph.control_flow import conditional_nodes
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.reachability import execution_order
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.transforms.rewriting.layers import (
    LAYERS,
    bias_add,
    channel_axis,
    layout,
    output_axis,
    output_channels,
    own_constant,
)


class BiasedLayer(Struct, frozen=True):
    """A layer with constant weights, and the bias that is added to its output.

    Args:
        layer: the layer.
        weights: its constant, which others may use too.
        add: BiasAdd, Add, or AddV2, the only consumer of the layer's output.
        bias: the constant that it adds, one number per channel, without other consumers.
    """

    layer: Node
    weights: Node
    add: Node
    bias: Node

    @property
    def channels(self) -> int:
        """Number of output channels."""
        return self.bias.attr_tensor("value").size

    @property
    def axis(self) -> int:
        """Dimension of the output channels, counted from the last: -1."""
        return output_axis(self.layer)


class Biased(Struct, frozen=True):
    """A graph with a bias for every requested layer, and these layers in order."""

    graph: Graph
    layers: tuple[BiasedLayer, ...]


def with_biases(
    graph: Graph, predicate: Callable[[Node, Node], bool], protected: Collection[str]
) -> Biased:
    """Add a bias of zeros to layers without a bias.

    Layers in branches and loops, which may not run, are skipped, and so are those whose weights are
    not finite float32.

    Args:
        predicate: selects layers by the layer and its weights.
    """
    conditional = conditional_nodes(graph)
    names = FreshNames(graph.by_name)
    new: dict[str, list[Node]] = {}
    pairs: list[tuple[str, str]] = []
    for layer in execution_order(graph):
        weights = _weights(graph, layer)
        if weights is None or layer.name in conditional or not predicate(layer, weights):
            continue
        own = _bias(graph, layer, protected)
        if own is not None:
            pairs.append((layer.name, own[0].name))
            continue
        inner = replace(layer, name=names.name(f"{layer.name}/layer"))
        count = output_channels(layer, weights.attr_tensor("value"))
        zeros = Tensor.packed(np.zeros(count or 0, np.float32))
        bias = constant(names.name(f"{layer.name}/bias"), zeros, layer.device)
        new[layer.name] = [inner, bias, bias_add(layer.name, inner, bias)]
        pairs.append((inner.name, layer.name))
    nodes = [n for old in graph for n in new.get(old.name, (old,))]
    done = graph.with_nodes(nodes) if new else graph
    return Biased(done, tuple(_biased(done, *pair) for pair in pairs))


def has_bias(graph: Graph, layer: Node, protected: Collection[str]) -> bool:
    """Return whether a layer has an exclusive bias that may be changed."""
    return _bias(graph, layer, protected) is not None


def shifted(bias: Node, by: Array) -> Node:
    """Return a bias with a number added to each channel, in double precision and rounded once."""
    value = bias.attr_tensor("value")
    moved = value.array().astype(np.float64) + by.reshape(value.shape)
    tensor = Tensor.packed(moved.astype(value.array().dtype), value.dtype)
    return constant(bias.name, tensor, bias.device, bias.inputs)


def replaced(graph: Graph, new: Mapping[str, Node]) -> Graph:
    """Replace nodes by name."""
    return graph.with_nodes(new.get(n.name, n) for n in graph)


def _weights(graph: Graph, layer: Node) -> Node | None:
    if layer.op not in LAYERS or len(layer.data_inputs) < 2:
        return None
    node = node_behind(graph, layer.data_inputs[1])
    if node.op != "Const":
        return None
    value = node.attr_tensor("value")
    fits = value.dtype is DType.FLOAT and output_channels(layer, value) is not None
    return node if fits and np.isfinite(value.array()).all() else None


def _bias(graph: Graph, layer: Node, protected: Collection[str]) -> tuple[Node, Node] | None:
    """Return the node that adds a bias to a layer, and its constant; None if it has none."""
    users = graph.consumers.get(layer.name, ())
    if len(users) != 1 or layer.name in protected or users[0].op not in ("BiasAdd", "Add", "AddV2"):
        return None
    add = users[0]
    refs = add.data_inputs
    if len(refs) != 2 or refs.count(Ref(layer.name)) != 1:
        return None
    other = refs[1 - refs.index(Ref(layer.name))]
    bias = own_constant(graph, other, add, protected)
    if bias is None:
        return None
    value, weights = bias.attr_tensor("value"), _weights(graph, layer)
    count = None if weights is None else output_channels(layer, weights.attr_tensor("value"))
    last = channel_axis(add) == len(layout(add)) - 1
    if add.op == "BiasAdd":
        fits = value.shape == (count,) and last == (output_axis(layer) == -1)
    else:
        fits = value.size == count and value.shape[output_axis(layer) :][:1] == (count,)
    return (add, bias) if fits and value.dtype is DType.FLOAT else None


def _biased(graph: Graph, layer: str, add: str) -> BiasedLayer:
    node, sum_ = graph[layer], graph[add]
    refs = sum_.data_inputs
    other = refs[1 - refs.index(Ref(layer))]
    return BiasedLayer(
        node, node_behind(graph, node.data_inputs[1]), sum_, node_behind(graph, other)
    )
