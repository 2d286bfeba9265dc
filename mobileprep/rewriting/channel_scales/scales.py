"""The scales of a graph's channels, and all that changes with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mobileprep.frozen import dataclass
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.rewriting.channel_scales.variables import Ids, ScaledTensor, ScaleVariables


@dataclass(frozen=True)
class ScaledLayer:
    """A layer whose weights change with the scales of its channels.

    Args:
        layer: the layer.
        weights: the constant, used by this layer alone.
        inputs: the scales of the channels that it takes; None where they stay.
        outputs: the scales of the channels that it puts out.
    """

    layer: Node
    weights: Node
    inputs: Ids | None
    outputs: Ids


@dataclass(frozen=True)
class ScaledConstant:
    """A node that combines channels with a constant, which has to be scaled as they are.

    Args:
        node: BiasAdd, Add, AddV2, Sub, Minimum or Maximum.
        index: which input is the constant.
        values: the constant.
        tensor: the channels.
    """

    node: Node
    index: int
    values: Array
    tensor: ScaledTensor


@dataclass(frozen=True)
class Bound:
    """A Relu6, whose upper bound has to be scaled as the channels are."""

    node: Node
    tensor: ScaledTensor


@dataclass(frozen=True)
class ChannelScales:
    """What would have to be scaled along in a graph.

    Args:
        variables: the scales.
        layers: the layers, in the order of execution.
        constants: the constants that are combined with channels.
        bounds: the upper bounds.
        refused: how many layers have weights that cannot be scaled, by reason.
    """

    variables: ScaleVariables
    layers: Sequence[ScaledLayer]
    constants: Sequence[ScaledConstant]
    bounds: Sequence[Bound]
    refused: Mapping[str, int]
