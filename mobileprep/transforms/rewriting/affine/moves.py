"""Nodes after a layer that move its channels as they are, or put a border around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from mobileprep.transforms.rewriting.affine.channels import Channels
from mobileprep.transforms.rewriting.layers import PRODUCTS_OF_MATRICES

PADS: Final = frozenset({"Pad", "PadV2", "MirrorPad"})
_MOVES: Final = frozenset({"Squeeze", "Reshape", "BatchToSpaceND"})

ShapeOf = Callable[[Ref], TensorShape]
"""The statically known shape of a tensor."""


def moved(node: Node, source: Ref, channels: Channels, shape_of: ShapeOf) -> Channels | str:
    """The channels after a node that computes nothing, or why scales cannot go before it.

    Args:
        shape_of: the shapes of the graph.

    Returns:
        The channels where the node has put them, or the reason; empty for a node of another kind.
    """
    if node.data_inputs.count(source) > 1 or node.data_inputs[0] != source:
        return ""
    if node.op in PADS:
        return _padded(node, channels)
    if node.op not in _MOVES:
        return ""
    if node.op == "Squeeze":
        return _squeezed(node, channels)
    if channels.axis != -1:
        return f"{node.op} moves channels"
    if node.op == "Reshape":
        return _reshaped(node, channels, shape_of)
    return _from_batch(node, channels)


def _padded(pad: Node, channels: Channels) -> Channels | str:
    if len(pad.data_inputs) != (3 if pad.op == "PadV2" else 2):
        return "it has not the inputs that a padding has"
    if channels.layer.op in PRODUCTS_OF_MATRICES:
        return "a matrix is padded"
    paddings = channels.constants.value(pad.data_inputs[1])
    if paddings is None or paddings.shape != (channels.rank, 2):
        return "the paddings are not constant"
    return "the channels are padded" if paddings.array()[channels.axis].any() else channels


def _squeezed(node: Node, channels: Channels) -> Channels | str:
    given = node.attrs.get("squeeze_dims")
    dims = () if given is None else given.value
    if not dims or channels.rank is None:
        return "Squeeze does not tell which dimensions it drops"
    dropped = {d - channels.rank if d >= 0 else d for d in dims}
    if channels.axis in dropped:
        return "Squeeze drops the channels"
    behind = sum(d > channels.axis for d in dropped)
    return replace(channels, axis=channels.axis + behind, rank=channels.rank - len(dropped))


def _reshaped(node: Node, channels: Channels, shape_of: ShapeOf) -> Channels | str:
    shape = shape_of(Ref(node.name))
    if not shape or shape[-1] != channels.count:
        return "Reshape divides the channels in another way"
    return replace(channels, rank=len(shape))


def _from_batch(node: Node, channels: Channels) -> Channels | str:
    if len(node.data_inputs) != 3:
        return "BatchToSpaceND has not the inputs that it takes"
    block = channels.constants.value(node.data_inputs[1])
    if block is None or channels.rank is None or block.size > channels.rank - 2:
        return "BatchToSpaceND moves channels"
    return channels
