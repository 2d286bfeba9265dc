"""Merges what scales and shifts a layer's output into the layer's weights and one bias."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir import attrs as attr
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node, constant
from mobileprep.ir.refs import Ref
from mobileprep.ir.rewrite import unique_name
from mobileprep.ir.tensor import Array, Tensor
from mobileprep.transforms._affine import Channels
from mobileprep.transforms._affine_chain import Chains, Step, Whole
from mobileprep.transforms._constant_expressions import ConstantExpressions
from mobileprep.transforms._layers import LAYERS, channel_axis, layout, output_channels, scaled

Cut = Callable[[Sequence[Step]], int]
"""``steps after a layer -> how many of them to merge``."""


@dataclass(frozen=True)
class Merged:
    """A graph after merging, for how many layers, and why nodes were left, by their names."""

    graph: Graph
    layers: int
    reasons: dict[str, str]


def merge_chains(graph: Graph, cut: Cut, protected: Collection[str]) -> Merged:
    """Follow every layer's output, and merge as many of the steps after it as ``cut`` says.

    Args:
        graph: the graph.
        cut: which steps to merge; the last of them must not be a padding.
        protected: names of nodes that must survive.
    """
    merging = _Merging(graph, protected)
    for layer in graph:
        if layer.op in LAYERS:
            merging.merge(layer, cut)
    return merging.result()


class _Merging:
    """Collects what takes the place of which node."""

    def __init__(self, graph: Graph, protected: Collection[str]) -> None:
        self._graph = graph
        self._protected = protected
        self._constants = ConstantExpressions(graph)
        self._chains = Chains(graph, self._constants, protected)
        self._taken = set(graph.by_name)
        self._new: dict[str, list[Node]] = {}
        self._lost: list[str] = []
        self._layers = 0

    def result(self) -> Merged:
        if not self._layers:
            return Merged(self._graph, 0, self._chains.reasons)
        nodes = [n for old in self._graph for n in self._new.get(old.name, (old,))]
        now = self._graph.with_nodes(nodes)
        gone = self._constants.unused(now, self._lost, self._protected)
        now = now.with_nodes(n for n in nodes if n.name not in gone)
        return Merged(now, self._layers, self._chains.reasons)

    def merge(self, layer: Node, cut: Cut) -> None:
        """Merge what follows a layer, or note why not."""
        refs = layer.data_inputs
        weights = self._constants.value(refs[1]) if len(refs) > 1 else None
        count = None if weights is None else output_channels(layer, weights)
        if weights is None or count is None or not weights.dtype.is_floating:
            return
        steps = self._chains.after(Channels(layer, count, self._constants))
        steps = steps[: cut(steps)]
        if not steps:
            return
        whole = self._chains.whole(steps)
        if isinstance(whole, str):
            self._chains.note(steps[-1].node, whole)
        elif whole.affine.scale is not None and not self._is_own(refs[1].node, layer):
            self._chains.note(steps[-1].node, "the weights are used elsewhere")
        else:
            self._replace(layer, weights, steps, whole)

    def _is_own(self, weights: str, layer: Node) -> bool:
        """Whether weights may be changed for a layer's sake; who only runs after them may stay."""
        users = (n for n in self._graph.consumers[weights] if n is not layer)
        shared = any(r.node == weights for n in users for r in n.data_inputs)
        uses = sum(r.node == weights for r in layer.data_inputs)
        return uses == 1 and not shared and weights not in self._protected

    def _replace(self, layer: Node, weights: Tensor, steps: Sequence[Step], whole: Whole) -> None:
        self._layers += 1
        for step in steps:
            self._new[step.node.name] = []
            self._lost += [r.node for r in step.node.inputs]
        if whole.affine.scale is not None:
            self._scale_weights(layer, weights, whole.affine.scale)
        final = steps[-1].node
        if whole.affine.offset is None and whole.pad is None:
            self._new[layer.name] = []
            nodes = [replace(layer, name=final.name)]
        else:
            nodes = self._bias_and_pad(layer, weights, final.name, whole)
        controls = dict.fromkeys(r for s in steps for r in s.node.control_inputs)
        last = nodes.pop()
        more = tuple(r for r in controls if r not in last.inputs)
        self._new[final.name] = [*nodes, replace(last, inputs=last.inputs + more)]

    def _scale_weights(self, layer: Node, weights: Tensor, scale: Array) -> None:
        old = self._graph[layer.data_inputs[1].node]
        product = scaled(layer, weights, scale.astype(weights.dtype.numpy))
        new = constant(old.name, product, old.device, old.control_inputs)
        self._new[old.name] = [new]
        self._lost += [r.node for r in old.data_inputs]

    def _bias_and_pad(self, layer: Node, weights: Tensor, name: str, whole: Whole) -> list[Node]:
        """A bias, a padding or both after a layer; the last node has the given name."""
        nodes: list[Node] = []
        source, pad = layer.name, whole.pad
        if whole.affine.offset is not None:
            source = name if pad is None else self._unique(f"{layer.name}/bias_add")
            bias = self._constant(layer, f"{layer.name}/bias", weights, whole.affine.offset)
            nodes += [bias, _bias_add(source, layer, bias, weights.dtype)]
        if pad is not None:
            inputs = (Ref(source), pad.data_inputs[1])
            if whole.border:
                border = self._constant(layer, f"{pad.name}/border", weights, whole.border)
                nodes.append(border)
                pad = replace(pad, op="PadV2", inputs=(*inputs, Ref(border.name)))
            else:
                op = "Pad" if pad.op == "PadV2" else pad.op
                pad = replace(pad, op=op, inputs=inputs)
            nodes.append(replace(pad, name=name))
        return nodes

    def _constant(self, layer: Node, name: str, weights: Tensor, values: Array | float) -> Node:
        """A constant of the weights' type, in the weights' loop."""
        kind = weights.dtype.numpy
        source = self._graph[layer.data_inputs[1].node]
        tensor = Tensor.packed(np.asarray(values).astype(kind), weights.dtype)
        return constant(self._unique(name), tensor, inputs=source.control_inputs)

    def _unique(self, name: str) -> str:
        found = unique_name(name, self._taken)
        self._taken.add(found)
        return found


def _bias_add(name: str, layer: Node, bias: Node, dtype: DType) -> Node:
    attrs = {"T": attr.dtype(dtype)}
    if layer.op != "MatMul":
        first = channel_axis(layer) < len(layout(layer)) - 1
        attrs["data_format"] = attr.string("NCHW" if first else "NHWC")
    return Node(name, "BiasAdd", (Ref(layer.name), Ref(bias.name)), layer.device, attrs)
