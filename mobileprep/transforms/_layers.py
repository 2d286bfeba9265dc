"""Layers with constant weights: their output channels, and weights scaled channel by channel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array, Tensor


@dataclass(frozen=True)
class LayerKind:
    """What the weights of an op look like; they are its second input.

    Args:
        rank: the number of dimensions of its weights and of its output.
        channels: the dimensions of the weights that make up the output channels.
    """

    rank: int
    channels: tuple[int, ...]


_KINDS: Final[Mapping[str, LayerKind]] = {
    "Conv2D": LayerKind(4, (3,)),
    "DepthwiseConv2dNative": LayerKind(4, (2, 3)),
    "MatMul": LayerKind(2, (1,)),
    "Conv2DBackpropInput": LayerKind(4, (2,)),
    "Conv3D": LayerKind(5, (4,)),
}

LAYERS: Final = frozenset(_KINDS)


def layer_kind(layer: Node) -> LayerKind:
    """What a layer's weights look like; its op must be one of ``LAYERS``."""
    if layer.op == "MatMul" and layer.attr_bool("transpose_b", False):
        return LayerKind(2, (0,))
    return _KINDS[layer.op]


def output_channels(layer: Node, weights: Tensor) -> int | None:
    """How many channels a layer puts out, or None where its weights have the wrong rank."""
    kind = layer_kind(layer)
    if len(weights.shape) != kind.rank:
        return None
    return math.prod(weights.shape[axis] for axis in kind.channels)


def layout(node: Node) -> str:
    """The order of a node's dimensions: ``data_format``, or what holds where it is not given."""
    return node.attr_str("data_format", "NDHWC" if node.op == "Conv3D" else "NHWC")


def channel_axis(node: Node) -> int:
    """The dimension of a node's tensors that runs over the channels."""
    order = layout(node)
    return order.index("C") if "C" in order else len(order) - 1


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
    rank = layer_kind(layer).rank
    if values.ndim > rank:
        return None
    axis = 1 if layer.op == "MatMul" else channel_axis(layer)
    wanted = [1] * rank
    shape = [1] * (rank - values.ndim) + list(values.shape)
    if values.size > 1:
        wanted[axis] = channels
    if shape != wanted:
        return None
    return np.broadcast_to(values.reshape(-1), (channels,))


def scaled(layer: Node, weights: Tensor, factors: Array) -> Tensor:
    """Weights multiplied channel by channel, in their own precision.

    Args:
        layer: the layer.
        weights: its weights, of a floating type and the right rank.
        factors: shape [output channels], of the weights' type.
    """
    kind = layer_kind(layer)
    shape = [weights.shape[i] if i in kind.channels else 1 for i in range(kind.rank)]
    # Weights of a broken training run may overflow; the user sees it in the validation.
    with np.errstate(over="ignore", invalid="ignore"):
        return Tensor.packed(weights.array() * factors.reshape(shape), weights.dtype)
