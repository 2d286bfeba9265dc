"""Which layers are quantized, and why the others are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir.branches import Branches
from mobileprep.ir.control_flow import conditional_nodes
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.order import execution_order
from mobileprep.rewriting.layers import LAYERS
from mobileprep.transforms.quantize_nodes.layer_weights import Weights, layer_weights
from mobileprep.transforms.quantize_nodes.ops import EIGHTBIT_OPS, reason_to_stay_float
from mobileprep.transforms.quantize_nodes.rules import Rules, Settings
from mobileprep.transforms.quantize_nodes.storing import is_worth_storing
from mobileprep.transforms.quantize_nodes.trained import trained_steps
from mobileprep.transforms.quantize_nodes.would_run import WouldRun

BY_RULE: Final = "a rule leaves it float"
_NO_KERNEL: Final = {
    "DepthwiseConv2dNative": (
        "TensorFlow has no kernel of its own for eight-bit depthwise convolutions"
    ),
}
_NO_FORM: Final = "there is no eight-bit form of its op"
# As many products of two eight-bit numbers surely fit a sum of 32 bits.
_MOST_PRODUCTS: Final = (1 << 31) // (255 * 255)


@dataclass(frozen=True)
class Layer:
    """A layer that is quantized.

    Args:
        node: the layer.
        weights: its weights.
        settings: how.
        is_worth_storing: whether its weights are stored in eight bits where it cannot compute so.
        why_float: why it cannot compute in eight bits, as it should; empty where it can.
    """

    node: Node
    weights: Weights
    settings: Settings
    is_worth_storing: bool = False
    why_float: str = ""

    @property
    def computes(self) -> bool:
        """Whether it computes in eight bits; else its weights alone are stored in them."""
        return self.settings.mode == "nodes" and not self.why_float


@dataclass(frozen=True)
class LayerChoice:
    """The layers to quantize by name, and how many stay float by reason."""

    layers: Mapping[str, Layer]
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def computing(self) -> frozenset[str]:
        """Those that compute in eight bits."""
        return frozenset(name for name, layer in self.layers.items() if layer.computes)


def choose_layers(
    graph: Graph,
    rules: Rules,
    ignored: frozenset[str],
    *,
    trained: bool,
    store_rest: bool = True,
) -> LayerChoice:
    """Choose the layers that are quantized.

    Args:
        graph: the graph.
        rules: what is done to which.
        ignored: ops that stay float.
        trained: whether ranges come from training, so that a layer whose input was trained with
            more bits stays float.
        store_rest: whether layers that cannot compute in eight bits store their weights in them,
            where that makes the file smaller.
    """
    conditions, runs = _Conditions(graph), WouldRun(graph)
    skipped: Counter[str] = Counter()
    found: dict[str, Layer] = {}
    for node in graph:
        if node.op not in LAYERS or node.op in ignored:
            continue
        layer = _found(graph, node, rules.settings(node), conditions, runs, trained=trained)
        if isinstance(layer, Layer):
            found[node.name] = layer
        else:
            skipped[layer] += 1
    layers: dict[str, Layer] = {}
    for name, layer in found.items():
        worth = store_rest and is_worth_storing(graph, layer.node, layer.weights, found)
        if layer.why_float:
            skipped[stored_though(layer.why_float) if worth else layer.why_float] += 1
        if worth or not layer.why_float:
            layers[name] = replace(layer, is_worth_storing=worth)
    return LayerChoice(layers, skipped)


def stored_though(reason: str) -> str:
    """What is told of a layer whose weights alone are in eight bits."""
    return f"{reason}; its weights are stored in eight bits"


def _found(
    graph: Graph,
    node: Node,
    settings: Settings,
    conditions: _Conditions,
    runs: WouldRun,
    *,
    trained: bool,
) -> Layer | str:
    if settings.mode == "float":
        return BY_RULE
    if node.attr_dtype("T", DType.FLOAT) is not DType.FLOAT:
        return "it is no float32 op"
    reason = ""
    if settings.mode == "nodes":
        reason = _reason_not_to_compute(node, runs)
        learnt = trained_steps(graph, node.data_inputs[0]) if trained and node.data_inputs else None
        if isinstance(learnt, str):
            return reason or learnt
    weights = layer_weights(graph, node)
    if isinstance(weights, str):
        return reason or weights
    if settings.mode == "nodes" and not reason:
        reason = _reason_of_sums(node, weights)
    if weights.gated and not conditions.hold_for(node):
        return reason or "its weights come through a branch that its input does not"
    return Layer(node, weights, settings, why_float=reason)


def _reason_not_to_compute(node: Node, runs: WouldRun) -> str:
    if node.op not in EIGHTBIT_OPS:
        return _NO_KERNEL.get(node.op, _NO_FORM)
    return reason_to_stay_float(node) or runs.reason_not(node)


def _reason_of_sums(node: Node, weights: Weights) -> str:
    channels = weights.value.shape[-2 if node.attr_bool("transpose_b", False) else -1]
    products = weights.value.size // max(channels, 1)
    return "its sums may not fit 32 bits" if products > _MOST_PRODUCTS else ""


class _Conditions:
    """Under which conditions inputs of layers are there."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def _branches(self) -> Branches:
        branches = Branches(lambda _: None)
        for node in execution_order(self._graph):
            branches.add(node)
        return branches

    @cached_property
    def _conditional(self) -> frozenset[str]:
        return conditional_nodes(self._graph)

    def hold_for(self, layer: Node) -> bool:
        """Whether a layer's first input is there only where its second one is."""
        values, weights = layer.data_inputs[:2]
        if values.node not in self._conditional:
            return False
        return self._branches.of(weights) <= self._branches.of(values)
