"""Merge ops that scale and shift a layer's output into its weights and one bias."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.graph.bypass import without_idle_controls
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.transforms.rewriting.affine.chain import (
    PADS,
    AffineChains,
    AffineStep,
    Whole,
    awaited,
)
from mobileprep.transforms.rewriting.affine.channels import Channels
from mobileprep.transforms.rewriting.clipping import ConstantExpressions
from mobileprep.transforms.rewriting.layers import (
    LAYERS,
    bias_add,
    output_channels,
    scaled,
)

Cut = Callable[[Sequence[AffineStep]], int]
"""Function that returns how many of the steps after a layer to merge."""


class Merged(Struct, frozen=True):
    """A graph after merging.

    Args:
        graph: the graph.
        layers: number of layers with merged steps.
        reasons: reasons why nodes were not merged, by node name.
        behind: names of nodes that their layer absorbed, or could absorb.
    """

    graph: Graph
    layers: int
    reasons: dict[str, str]
    behind: frozenset[str]


def merge_chains(graph: Graph, cut: Cut, protected: Collection[str]) -> Merged:
    """Merge the steps after every layer that ``cut`` selects.

    Args:
        cut: returns the number of steps to merge; the last of them must scale or shift.
    """
    ready = without_idle_controls(graph, protected)
    merging = _Merging(ready, protected)
    for layer in ready:
        if layer.op in LAYERS:
            merging.merge(layer, cut)
    done = merging.result()
    return done if done.layers else replace(done, graph=graph)


class _Weights(Struct, frozen=True):
    """A layer's weights, and the node that outputs them."""

    values: Tensor
    node: Node


class _Merging:
    """Collector of replacements by node name."""

    def __init__(self, graph: Graph, protected: Collection[str]) -> None:
        self._graph = graph
        self._protected = protected
        self._constants = ConstantExpressions(graph)
        self._chains = AffineChains(graph, self._constants, protected)
        self._names = FreshNames(graph.by_name)
        self._new: dict[str, list[Node]] = {}
        self._lost: list[str] = []
        self._behind: set[str] = set()
        self._layers = 0

    def result(self) -> Merged:
        if not self._layers:
            return Merged(self._graph, 0, self._chains.reasons, frozenset(self._behind))
        nodes = [n for old in self._graph for n in self._new.get(old.name, (old,))]
        now = self._graph.with_nodes(nodes)
        gone = self._constants.unused(now, self._lost, self._protected)
        now = now.with_nodes(n for n in nodes if n.name not in gone)
        return Merged(now, self._layers, self._chains.reasons, frozenset(self._behind))

    def merge(self, layer: Node, cut: Cut) -> None:
        """Merge the steps after a layer, or record why they cannot be merged."""
        refs = layer.data_inputs
        values = self._constants.value(refs[1]) if len(refs) > 1 else None
        count = None if values is None else output_channels(layer, values)
        if values is None or count is None or not values.dtype.is_floating:
            return
        weights = _Weights(values, self._graph[refs[1].node])
        steps = self._chains.after(Channels.of(layer, count, self._constants))
        if not self._merged(layer, weights, steps, cut):
            # The steps after a padding may prevent merging those before it.
            self._merged(layer, weights, _before_padding(steps), cut)

    def _merged(
        self, layer: Node, weights: _Weights, steps: Sequence[AffineStep], cut: Cut
    ) -> bool:
        """Return whether the steps are done: merged, or with nothing to merge."""
        part = steps[: cut(steps)]
        whole = self._chains.whole(part)
        if isinstance(whole, str):
            self._chains.note(part[-1].node, whole)
            return False
        self._behind.update(s.node.name for s in steps)
        if part:
            self._replace(layer, weights, part, whole)
        return True

    def _is_own(self, weights: str, layer: Node) -> bool:
        """Return whether only this layer uses the weights; control dependencies do not count."""
        users = (n for n in self._graph.consumers[weights] if n is not layer)
        shared = any(r.node == weights for n in users for r in n.data_inputs)
        uses = sum(r.node == weights for r in layer.data_inputs)
        return uses == 1 and not shared and weights not in self._protected

    def _replace(
        self, layer: Node, weights: _Weights, steps: Sequence[AffineStep], whole: Whole
    ) -> None:
        self._layers += 1
        for step in steps:
            self._new[step.node.name] = []
            self._lost += [r.node for r in step.node.inputs]
        before: list[Node] = []
        if whole.affine.scale is not None:
            layer, before = self._scaled(layer, weights, whole.affine.scale)
        final = steps[-1].node
        if whole.affine.offset is None and not whole.moves:
            self._new[layer.name] = []
            nodes = [*before, replace(layer, name=final.name)]
        else:
            self._new[layer.name] = [*before, layer]
            nodes = self._bias_and_moves(layer, weights, final.name, whole)
        last = nodes.pop()
        stay = {n.name for n in (*self._new[layer.name], *nodes)}
        gone = {layer.name, *(s.node.name for s in steps)} - stay
        more = tuple(r for r in awaited(steps, gone) if r not in last.inputs)
        self._new[final.name] = [*nodes, replace(last, inputs=last.inputs + more)]

    def _scaled(self, layer: Node, weights: _Weights, scale: Array) -> tuple[Node, list[Node]]:
        """Return the layer with scaled weights, and their constant if other nodes share them."""
        old = weights.node
        product = scaled(layer, weights.values, scale.astype(weights.values.dtype.numpy))
        if self._is_own(old.name, layer):
            self._new[old.name] = [constant(old.name, product, old.device, old.control_inputs)]
            self._lost += [r.node for r in old.data_inputs]
            return layer, []
        name = self._names.name(f"{layer.name}/weights")
        inputs = (layer.inputs[0], Ref(name), *layer.inputs[2:])
        self._lost.append(old.name)
        own = constant(name, product, old.device, old.control_inputs)
        return replace(layer, inputs=inputs), [own]

    def _bias_and_moves(
        self, layer: Node, weights: _Weights, name: str, whole: Whole
    ) -> list[Node]:
        """Return the bias and moves after a layer; the last node has the given name."""
        nodes: list[Node] = []
        moves = whole.moves
        source = layer.name
        if whole.affine.offset is not None:
            source = self._names.name(f"{layer.name}/bias_add") if moves else name
            bias = self._constant(f"{layer.name}/bias", weights, whole.affine.offset)
            nodes += [bias, bias_add(source, layer, bias)]
        for i, move in enumerate(moves, start=1):
            again = replace(move, inputs=(Ref(source), *move.data_inputs[1:]))
            if move.op in ("Pad", "PadV2"):
                again = self._padded(again, weights, whole.border or 0.0, nodes)
            source = move.name if i < len(moves) else name
            nodes.append(replace(again, name=source))
        return nodes

    def _padded(self, pad: Node, weights: _Weights, border: float, nodes: list[Node]) -> Node:
        """Return the padding with another value, and append its constant to ``nodes``."""
        if not border:
            return replace(pad, op="Pad", inputs=pad.inputs[:2])
        value = self._constant(f"{pad.name}/border", weights, border)
        nodes.append(value)
        return replace(pad, op="PadV2", inputs=(*pad.inputs[:2], Ref(value.name)))

    def _constant(self, name: str, weights: _Weights, values: Array | float) -> Node:
        """Create a constant of the weights' type, in the weights' loop."""
        dtype = weights.values.dtype
        tensor = Tensor.packed(np.asarray(values).astype(dtype.numpy), dtype)
        return constant(self._names.name(name), tensor, inputs=weights.node.control_inputs)


def _before_padding(steps: Sequence[AffineStep]) -> Sequence[AffineStep]:
    first = next((i for i, s in enumerate(steps) if s.node.op in PADS), 0)
    return steps[:first]
