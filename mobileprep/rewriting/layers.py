"""Layers with constant weights: their output channels, and weights scaled channel by channel."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Final

import numpy as np

from mobileprep.frozen import dataclass
from mobileprep.ir import attrs as attr
from mobileprep.ir.graph import Graph
from mobileprep.ir.identities import IDENTITIES
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Array, Tensor


@dataclass(frozen=True)
class LayerKind:
    """What the weights of an op look like; they are its second input.

    Args:
        rank: the number of dimensions of its weights and of its output; None where the weights
            may have any, and the output has as many or more.
        channels: the dimensions of the weights that make up the output channels, counted from
            the last one: -1.
    """

    rank: int | None
    channels: tuple[int, ...]


_KINDS: Final[Mapping[str, LayerKind]] = {
    "Conv2D": LayerKind(4, (-1,)),
    "DepthwiseConv2dNative": LayerKind(4, (-2, -1)),
    "MatMul": LayerKind(2, (-1,)),
    "BatchMatMul": LayerKind(None, (-1,)),
    "BatchMatMulV2": LayerKind(None, (-1,)),
    "Conv2DBackpropInput": LayerKind(4, (-2,)),
    "Conv3D": LayerKind(5, (-1,)),
}
_TRANSPOSED: Final = {"MatMul": "transpose_b", "BatchMatMul": "adj_y", "BatchMatMulV2": "adj_y"}

LAYERS: Final = frozenset(_KINDS)
PRODUCTS_OF_MATRICES: Final = frozenset(_TRANSPOSED)


def layer_kind(layer: Node) -> LayerKind:
    """What a layer's weights look like; its op must be one of ``LAYERS``."""
    kind = _KINDS[layer.op]
    if layer.op in _TRANSPOSED and layer.attr_bool(_TRANSPOSED[layer.op], False):
        return LayerKind(kind.rank, (-2,))
    return kind


def output_channels(layer: Node, weights: Tensor) -> int | None:
    """How many channels a layer puts out, or None where its weights have the wrong rank."""
    kind = layer_kind(layer)
    if len(weights.shape) != kind.rank and (kind.rank or len(weights.shape) < 2):
        return None
    return math.prod(weights.shape[axis] for axis in kind.channels)


def layout(node: Node) -> str:
    """The order of a node's dimensions: ``data_format``, or what holds where it is not given."""
    return node.attr_str("data_format", "NDHWC" if node.op == "Conv3D" else "NHWC")


def channel_axis(node: Node) -> int:
    """The dimension of a node's tensors that runs over the channels."""
    order = layout(node)
    return order.index("C") if "C" in order else len(order) - 1


def output_axis(layer: Node) -> int:
    """The dimension of a layer's output that runs over the channels, counted from the last: -1."""
    if layer.op in PRODUCTS_OF_MATRICES:
        return -1
    return channel_axis(layer) - len(layout(layer))


def per_channel(layer: Node, channels: int, values: Array) -> Array | None:
    """A constant that is combined with a layer's output as one value a channel.

    Args:
        layer: the layer.
        channels: its output channels.
        values: the constant, of any shape.

    Returns:
        Shape [channels], or None where the constant does not run along the channels alone, or
        makes the output larger.
    """
    return along_axis(values, channels, output_axis(layer), layer_kind(layer).rank)


def along_axis(values: Array, channels: int, axis: int, rank: int | None) -> Array | None:
    """A constant that is combined with a tensor as one value a channel.

    Args:
        values: the constant, of any shape.
        channels: the tensor's channels.
        axis: its dimension that runs over them, counted from the last: -1.
        rank: how many dimensions it has; None where that is not known.

    Returns:
        Shape [channels], or None where the constant does not run along the channels alone, or
        makes the tensor larger.
    """
    if values.ndim > (-axis if rank is None else rank):
        return None
    wanted = [1] * values.ndim
    if values.size > 1:
        if values.ndim < -axis:
            return None
        wanted[axis] = channels
    if list(values.shape) != wanted:
        return None
    return np.broadcast_to(values.reshape(-1), (channels,))


def scaled(layer: Node, weights: Tensor, factors: Array) -> Tensor:
    """Weights multiplied channel by channel, in their own precision.

    Args:
        layer: the layer.
        weights: its weights, of a floating type and the right rank.
        factors: shape [output channels], of the weights' type.
    """
    shape = [1] * len(weights.shape)
    for axis in layer_kind(layer).channels:
        shape[axis] = weights.shape[axis]
    # Weights of a broken training run may overflow; the user sees it in the validation.
    with np.errstate(over="ignore", invalid="ignore"):
        return Tensor.packed(weights.array() * factors.reshape(shape), weights.dtype)


def input_axis(layer: Node) -> int:
    """The dimension of a layer's weights that runs over its input's channels, from the last: -1."""
    if layer.op == "Conv2DBackpropInput":
        return -1
    transposed = layer.op in _TRANSPOSED and layer.attr_bool(_TRANSPOSED[layer.op], False)
    return -1 if transposed else -2


def through(layer: Node, weights: Array, amounts: Array) -> Array:
    """What a layer makes of inputs that are the same everywhere, its borders aside.

    Args:
        layer: Conv2D, DepthwiseConv2dNative, MatMul or Conv3D.
        weights: its weights.
        amounts: float64 [input channels].

    Returns:
        float64 [output channels].
    """
    shape = [1] * weights.ndim
    shape[input_axis(layer)] = len(amounts)
    kept = [axis + weights.ndim for axis in layer_kind(layer).channels]
    others = tuple(i for i in range(weights.ndim) if i not in kept)
    found: Array = (weights.astype(np.float64) * amounts.reshape(shape)).sum(axis=others)
    return found.reshape(-1)


def data_input(layer: Node) -> int:
    """Which input of a layer is the tensor that its weights are applied to."""
    return 2 if layer.op == "Conv2DBackpropInput" else 0


def own_constant(graph: Graph, ref: Ref, user: Node, protected: Collection[str]) -> Node | None:
    """The float constant behind an input, which nothing else takes; None where there is none.

    Args:
        graph: the graph.
        ref: the input; identities may lie between it and the constant.
        user: the node whose input it is.
        protected: names of nodes that must survive.
    """
    while not ref.index:
        node = graph.get(ref.node)
        users = [n for n in graph.consumers.get(ref.node, ()) if ref in n.data_inputs]
        if node is None or users != [user] or user.data_inputs.count(ref) > 1:
            return None
        if node.name in protected:
            return None
        if node.op == "Const":
            return node if node.attr_tensor("value").dtype.is_floating else None
        if node.op not in IDENTITIES or not node.data_inputs:
            return None
        ref, user = node.data_inputs[0], node
    return None


def bias_add(name: str, layer: Node, bias: Node) -> Node:
    """A BiasAdd of a constant to what a layer puts out, under a name."""
    attrs = {"T": attr.dtype(bias.attr_dtype("dtype"))}
    if layer.op not in PRODUCTS_OF_MATRICES:
        attrs["data_format"] = attr.string("NHWC" if output_axis(layer) == -1 else "NCHW")
    return Node(name, "BiasAdd", (Ref(layer.name), Ref(bias.name)), layer.device, attrs)
