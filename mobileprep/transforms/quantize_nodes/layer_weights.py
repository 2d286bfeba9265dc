"""The constant weights of layers, found behind what passes them on, in eight bits."""

from __future__ import annotations

from typing import Final

import numpy as np

from mobileprep.errors import MobileprepError
from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.identities import IDENTITIES
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import ENTERS, SWITCHES
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Array, Tensor
from mobileprep.ops.constant_evaluation import evaluate_node
from mobileprep.rewriting.layers import layer_kind, output_channels
from mobileprep.transforms.quantize_nodes.trained import FAKE_QUANTS, TrainedSteps, trained_steps
from mobileprep.transforms.quantize_nodes.weights import (
    QuantizedWeights,
    WeightSettings,
    on_channel_steps,
    on_steps,
    quantize_weights,
)

_NO_CONSTANT: Final = "its weights are no constant"
_GATES: Final = ENTERS | SWITCHES
_LONGEST: Final = 32
_EIGHT_BITS: Final = 8


@dataclass(frozen=True)
class Weights:
    """The weights that a layer has.

    Args:
        name: of the constant.
        value: as the layer gets them.
        gated: whether they come through the gate of a loop or a branch.
        trained: the steps that they are on.
    """

    name: str
    value: Array
    gated: bool = False
    trained: TrainedSteps | None = None

    def quantized(self, layer: Node, settings: WeightSettings) -> QuantizedWeights:
        """The weights in eight bits; steps that were learnt decide before the settings."""
        axes = layer_kind(layer).channels
        learnt = self.trained
        if learnt is not None and settings.bits == _EIGHT_BITS:
            if learnt.steps is not None:
                return on_steps(self.value, learnt.steps, learnt.lowest, learnt.highest)
            channels = output_channels(layer, Tensor.of(self.value))
            if axes[-1] == -1 and learnt.is_even and learnt.sizes.size == channels:
                return on_channel_steps(self.value, axes, learnt.sizes)
        return quantize_weights(self.value, axes, settings)


def layer_weights(graph: Graph, layer: Node) -> Weights | str:
    """The weights of a layer, or why they cannot be quantized."""
    if len(layer.data_inputs) < 2:
        return _NO_CONSTANT
    path = _path(graph, layer.data_inputs[1])
    if path is None:
        return _NO_CONSTANT
    learnt = next((n for n in path if n.op in FAKE_QUANTS), None)
    trained = None if learnt is None else trained_steps(graph, Ref(learnt.name))
    if isinstance(trained, str):
        return trained
    value = _value(graph, path)
    if value is None or value.dtype is not DType.FLOAT:
        return _NO_CONSTANT
    array = value.array()
    if output_channels(layer, value) is None or not array.size:
        return "its weights have the wrong shape"
    if not np.isfinite(array).all():
        return "its weights hold infinity or NaN"
    name = learnt.name if learnt is not None else path[-1].name
    return Weights(name, array, any(n.op in _GATES for n in path), trained)


def _path(graph: Graph, ref: Ref) -> list[Node] | None:
    """The nodes from a tensor up to the constant that it is made of, or None."""
    path: list[Node] = []
    while len(path) < _LONGEST:
        node = graph.get(ref.node)
        if node is None or (ref.index and node.op not in SWITCHES):
            return None
        path.append(node)
        if node.op == "Const":
            return path
        if node.op not in IDENTITIES | _GATES | FAKE_QUANTS | {"Dequantize"}:
            return None
        if not node.data_inputs:
            return None
        ref = node.data_inputs[0]
    return None


def _value(graph: Graph, path: list[Node]) -> Tensor | None:
    """What the last node of a path becomes on its way to the first."""
    value = path[-1].attr_tensor("value")
    for node in reversed(path[:-1]):
        if node.op in IDENTITIES or node.op in _GATES:
            continue
        others = [_path(graph, r) for r in node.data_inputs[1:]]
        if any(o is None or any(n.op == "Dequantize" for n in o) for o in others):
            return None
        ends = [o[-1].attr_tensor("value") for o in others if o]
        try:
            (value,) = evaluate_node(node, [value, *ends])
        except MobileprepError:
            return None
    return value
