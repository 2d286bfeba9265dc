"""Whether weights of a layer that stays in floats are worth storing in eight bits."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.ir.graph import Graph
from mobileprep.ir.identities import IDENTITIES
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import ENTERS, SWITCHES
from mobileprep.ir.reachability import closure
from mobileprep.ir.tensor import Tensor
from mobileprep.rewriting.layers import output_channels
from mobileprep.transforms.quantize_nodes.layer_weights import Weights

# As quantize_weights has it.
_LEAST: Final = 1024
# About what the nodes that decode weights take of a file.
_DECODING_BYTES: Final = 512
_PASSING: Final = IDENTITIES | ENTERS | SWITCHES


def is_worth_storing(
    graph: Graph, layer: Node, weights: Weights, quantized: Collection[str]
) -> bool:
    """Whether a file becomes smaller by weights in eight bits.

    Args:
        graph: the graph.
        layer: the layer.
        weights: its weights.
        quantized: the names of all layers that take eight-bit weights; where others take the same
            weights, they have to stay.
    """
    size = weights.value.size
    channels = output_channels(layer, Tensor.of(weights.value)) or 0
    saved = 3 * size - 4 * channels
    if size < _LEAST or saved < _DECODING_BYTES:
        return False
    stored = graph[weights.name]
    if stored.op == "Const" and stored.attr_tensor("value").dtype is not DType.FLOAT:
        return False  # in eight bits already

    def passed(name: str) -> Iterator[str]:
        return (n.name for n in graph.consumers.get(name, ()) if n.op in _PASSING)

    passing = closure([stored.name], passed)
    users = {n.name for name in passing for n in graph.consumers.get(name, ())}
    return users - passing <= set(quantized)
