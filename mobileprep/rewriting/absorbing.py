"""Moves part of a layer's bias behind the activation, into the biases of the layers behind.

Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction (2019),
section 4.1.3. ``relu(x) - c`` is ``relu(x - c)`` wherever ``x`` is ``c`` at least.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir import attrs as attr
from mobileprep.ir.channel_statistics import changed_statistics
from mobileprep.ir.graph import Graph
from mobileprep.ir.names import FreshNames
from mobileprep.ir.node import Node, constant
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Array, Tensor
from mobileprep.rewriting.biases import Biased, BiasedLayer, replaced, shifted
from mobileprep.rewriting.layers import (
    data_input,
    input_axis,
    output_axis,
    own_constant,
    through,
)

_RELU6_BOUND: Final = 6.0
_TAKING: Final = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul", "Conv3D"})
_ACTIVATIONS: Final = frozenset({"Relu", "Relu6"})


@dataclass(frozen=True)
class Absorption:
    """A layer from whose bias something can be moved.

    Args:
        source: the layer.
        activation: the Relu or Relu6 behind its bias.
        limit: the Minimum behind that, if there is one.
        bound: its constant, one number for each channel.
        takers: all that takes the activation: layers that pad nothing.
    """

    source: BiasedLayer
    activation: Node
    limit: Node | None
    bound: Node | None
    takers: tuple[BiasedLayer, ...]

    @property
    def most(self) -> Array:
        """The most that can be moved without a bound below zero; shape [channels]."""
        if self.bound is not None:
            return self.bound.attr_tensor("value").array().reshape(-1).astype(np.float64)
        most = _RELU6_BOUND if self.activation.op == "Relu6" else np.inf
        return np.full(self.source.channels, most)


def pads_nothing(layer: Node, weights: Node) -> bool:
    """Whether each output of a layer is made of as many elements: no border of zeros is added."""
    if layer.op not in _TAKING:
        return False
    if layer.op == "MatMul":
        return not layer.attr_bool("transpose_a", False)
    window = weights.attr_tensor("value").shape[:-2]
    padding = layer.attr_str("padding")
    return padding == "VALID" or (padding == "SAME" and all(size == 1 for size in window))


def find_absorptions(biased: Biased, protected: Collection[str]) -> list[Absorption]:
    """The layers of a graph from whose biases something can be moved.

    Args:
        biased: the graph, and its layers with biases.
        protected: names of nodes that are fed or fetched: their tensors stay as they are.
    """
    takers = {layer.layer.name: layer for layer in biased.layers}
    found = (_absorption(biased.graph, layer, takers, protected) for layer in biased.layers)
    return [absorption for absorption in found if absorption is not None]


def _absorption(
    graph: Graph, source: BiasedLayer, takers: Mapping[str, BiasedLayer], protected: Collection[str]
) -> Absorption | None:
    activation = _only_user(graph, source.add, protected)
    if activation is None or activation.op not in _ACTIVATIONS or activation.name in protected:
        return None
    limit, bound = None, None
    after = _only_user(graph, activation, protected)
    if activation.op == "Relu" and after is not None and after.op == "Minimum":
        limit, bound = after, _bound(graph, activation, after, source, protected)
        if bound is None or limit.name in protected:
            return None
    end = limit or activation
    users = graph.consumers.get(end.name, [])
    layers = tuple(takers[n.name] for n in users if n.name in takers)
    if not users or len(layers) < len(users):
        return None
    if not all(_takes(layer, Ref(end.name), source) for layer in layers):
        return None
    return Absorption(source, activation, limit, bound, layers)


def _only_user(graph: Graph, node: Node, protected: Collection[str]) -> Node | None:
    users = graph.consumers.get(node.name, ())
    return users[0] if len(users) == 1 and node.name not in protected else None


def _bound(
    graph: Graph, activation: Node, limit: Node, source: BiasedLayer, protected: Collection[str]
) -> Node | None:
    """The constant that bounds each channel; None where it does not."""
    refs = limit.data_inputs
    if len(refs) != 2 or refs.count(Ref(activation.name)) != 1:
        return None
    other = refs[1 - refs.index(Ref(activation.name))]
    bound = own_constant(graph, other, limit, protected)
    if bound is None or bound.attr_tensor("value").dtype is not DType.FLOAT:
        return None
    shape = bound.attr_tensor("value").shape
    channels = source.channels
    fits = int(np.prod(shape)) == channels and shape[source.axis :][:1] == (channels,)
    return bound if fits else None


def _takes(layer: BiasedLayer, tensor: Ref, source: BiasedLayer) -> bool:
    """Whether a layer takes a tensor as its data alone, channel by channel."""
    node, shape = layer.layer, layer.weights.attr_tensor("value").shape
    refs = node.data_inputs
    places = [i for i, r in enumerate(refs) if r == tensor]
    same = output_axis(node) == source.axis and shape[input_axis(node)] == source.channels
    return places == [data_input(node)] and same and pads_nothing(node, layer.weights)


def absorbed(graph: Graph, moves: Sequence[tuple[Absorption, Array]]) -> Graph:
    """The graph with part of some biases moved.

    Args:
        graph: the graph in which they were found.
        moves: for each layer how much of each channel; float64 of shape [channels].
    """
    shifts: dict[str, Array] = {}
    biases: dict[str, Node] = {}
    new: dict[str, list[Node]] = {}
    names = FreshNames(graph.by_name)
    for absorption, amounts in moves:
        add = absorption.source.add
        new[add.name] = [changed_statistics(add, 1.0, -amounts)]
        changes = [(absorption.source.bias, -amounts)]
        changes += [
            (t.bias, through(t.layer, t.weights.attr_tensor("value").array(), amounts))
            for t in absorption.takers
        ]
        if absorption.bound is not None:
            changes.append((absorption.bound, -amounts))
        elif absorption.activation.op == "Relu6":
            bound = _RELU6_BOUND - amounts
            new[absorption.activation.name] = _bounded(absorption, bound, names)
        for bias, by in changes:
            biases[bias.name] = bias
            shifts[bias.name] = shifts.get(bias.name, 0.0) + by
    moved = replaced(graph, {name: shifted(bias, shifts[name]) for name, bias in biases.items()})
    return moved.with_nodes(n for old in moved for n in new.get(old.name, (old,)))


def _bounded(absorption: Absorption, bound: Array, names: FreshNames) -> list[Node]:
    """A Relu6 as Relu and the lesser of that and a bound for each channel."""
    node = absorption.activation
    values = bound.reshape(-1, *[1] * (-absorption.source.axis - 1)).astype(np.float32)
    limit = constant(names.name(f"{node.name}/bound"), Tensor.packed(values), node.device)
    relu = replace(node, name=names.name(f"{node.name}/relu"), op="Relu")
    inputs = (Ref(relu.name), Ref(limit.name))
    attrs = {"T": attr.dtype(DType.FLOAT)}
    return [relu, limit, Node(node.name, "Minimum", inputs, node.device, attrs)]
