"""Finds the channels of a graph that may be scaled, and all that would have to be scaled along."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import BATCH_NORMS, MERGES, SCALINGS
from mobileprep.ir.order import execution_order
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Tensor
from mobileprep.ops.constant_evaluation import SHAPE_OPS
from mobileprep.ops.shape_inference import Shapes, shape_of, shapes_if_valid
from mobileprep.rewriting.channel_scales.passing import Passed, joined, multiplied, passed
from mobileprep.rewriting.channel_scales.scales import (
    Bound,
    ChannelScales,
    ScaledConstant,
    ScaledLayer,
)
from mobileprep.rewriting.channel_scales.variables import ScaledTensor, ScaleVariables
from mobileprep.rewriting.clipping import has_few_values
from mobileprep.rewriting.constant_expressions import ConstantExpressions
from mobileprep.rewriting.layers import (
    LAYERS,
    along_axis,
    channel_axis,
    data_input,
    input_axis,
    layer_kind,
    layout,
    output_axis,
    output_channels,
    own_constant,
)

_FLOATS: Final = frozenset({DType.FLOAT, DType.DOUBLE})
_OFFSETS: Final = frozenset({"BiasAdd", "Add", "AddV2", "Sub", "Minimum", "Maximum"})
_JOINS: Final = frozenset({"Add", "AddV2", "Sub", "AddN", "Minimum", "Maximum"})
_SHARED: Final = "its weights are shared, computed or no floats"
_NORM: Final = "a batch normalization is not fused yet"


def find_scales(
    graph: Graph,
    protected: Collection[str],
    *,
    through_relu6: bool = True,
    keep_stored: bool = False,
) -> ChannelScales:
    """Find the channels that may be scaled without changing what the graph computes.

    Args:
        graph: the graph; its inputs must be there.
        protected: names of nodes that are fed or fetched: their tensors stay as they are.
        through_relu6: whether scales may pass Relu6, which then becomes Relu and Minimum.
        keep_stored: whether to leave weights that were in 8 bits before: their steps are even.
    """
    return _Search(graph, protected, through_relu6, keep_stored).run()


class _Search:
    """One walk over the graph in the order of execution."""

    def __init__(
        self,
        graph: Graph,
        protected: Collection[str],
        through_relu6: bool,
        keep_stored: bool,
    ) -> None:
        self._graph = graph
        self._protected = protected
        self._through_relu6 = through_relu6
        self._keep_stored = keep_stored
        self._constants = ConstantExpressions(graph)
        self._variables = ScaleVariables()
        self._tensors: dict[Ref, ScaledTensor] = {}
        self._layers: list[ScaledLayer] = []
        self._offsets: list[ScaledConstant] = []
        self._bounds: list[Bound] = []
        self._refused: Counter[str] = Counter()

    def run(self) -> ChannelScales:
        order = execution_order(self._graph)
        for node in order:
            self._look_at(node)
        self._pin_loops(order)
        for ref in self._tensors:
            if not any(ref in n.data_inputs for n in self._graph.consumers.get(ref.node, ())):
                self._pin(ref, "nothing takes what it puts out")
        return ChannelScales(
            self._variables, self._layers, self._offsets, self._bounds, self._refused
        )

    def _look_at(self, node: Node) -> None:
        if node.op in LAYERS:
            out = self._layer(node)
        elif node.op in SHAPE_OPS or not any(r in self._tensors for r in node.data_inputs):
            return  # it does not see its channels' values
        else:
            out = self._passed(node)
        if isinstance(out, str):
            if node.op in LAYERS:
                self._refused[out] += 1
            for ref in node.data_inputs:
                self._pin(ref, out)
            return
        self._tensors[Ref(node.name)] = out
        if node.name in self._protected:
            self._pin(Ref(node.name), "what it puts out is fed or fetched")

    def _pin_loops(self, order: Sequence[Node]) -> None:
        """Pin what goes to nodes that may run before it, or in no known order."""
        done = {n.name for n in order if n.op not in MERGES}
        for node in self._graph:
            if node.name not in done:
                for ref in node.data_inputs:
                    self._pin(ref, "it is part of a loop")

    def _pin(self, ref: Ref, reason: str) -> None:
        tensor = self._tensors.get(ref)
        if tensor is not None:
            self._variables.pin(tensor.ids, reason)

    def _layer(self, layer: Node) -> Passed:
        """The channels of a layer's output, which end those of its input."""
        refs = layer.data_inputs
        where = data_input(layer)
        if len(refs) <= max(where, 1):
            return "a layer lacks inputs"
        for i, ref in enumerate(refs):
            if i != where:
                self._pin(ref, "it is a layer's weights")
        weights = own_constant(self._graph, refs[1], layer, self._protected)
        value = None if weights is None else weights.attr_tensor("value")
        count = None if value is None else output_channels(layer, value)
        if weights is None or value is None or count is None or value.dtype not in _FLOATS:
            return _SHARED
        if not np.isfinite(value.array()).all():
            return "its weights are not finite"
        if self._keep_stored and has_few_values(value.array()):
            return "its weights fit 8 bits as they are: they have 256 values at most"
        given = self._tensors.get(refs[where])
        if given is not None and not self._takes(layer, value, given):
            return f"{layer.op} takes its channels in another order"
        ids = self._variables.fresh(count)
        inputs = None if given is None else given.ids
        self._layers.append(ScaledLayer(layer, weights, inputs, ids))
        rank = layer_kind(layer).rank
        return ScaledTensor(ids, output_axis(layer), rank, weights.control_inputs)

    def _takes(self, layer: Node, weights: Tensor, given: ScaledTensor) -> bool:
        """Whether a layer's weights have one index for each channel of its input."""
        if layer.attr_bool("transpose_a", False) or layer.attr_bool("adj_x", False):
            return False
        fits = weights.shape[input_axis(layer)] == len(given.ids)
        return fits and given.axis == output_axis(layer)

    def _passed(self, node: Node) -> Passed:
        refs = node.data_inputs
        found = [self._tensors.get(r) for r in refs]
        tensors = [t for t in found if t is not None]
        if node.op in BATCH_NORMS:
            return _NORM
        if node.op == "ConcatV2":
            return self._concatenated(node, found)
        if len(tensors) > 1 or len(set(refs)) < len(refs):
            return self._joined(node, found)
        if len(refs) == 2 and node.op in _OFFSETS | SCALINGS:
            index = 1 if found[1] is None else 0
            return self._combined(node, tensors[0], index)
        if found[0] is None:
            return f"its channels are a parameter of {node.op}"
        if node.op == "Relu6":
            return self._bounded(node, tensors[0])
        return passed(node, tensors[0], self._constants.value, self._shape_of)

    def _bounded(self, node: Node, tensor: ScaledTensor) -> Passed:
        if not self._through_relu6:
            return "a Relu6 has one bound for all channels"
        if tensor.rank is None:
            return "a Relu6 of unknown dimensions"
        self._bounds.append(Bound(node, tensor))
        return tensor

    def _combined(self, node: Node, tensor: ScaledTensor, index: int) -> Passed:
        """The channels after a node that takes them and, as the input of an index, another."""
        other = node.data_inputs[index]
        value = self._constants.value(other)
        if node.op in SCALINGS:
            if node.op != "Mul" and index == 0:
                return "it divides by its channels"
            return multiplied(tensor, self._shape_of(other) if value is None else value.shape)
        if value is None or not value.dtype.is_floating:
            return f"{node.op} combines its channels with what is not scaled"
        count = len(tensor.ids)
        axis = tensor.axis
        if node.op == "BiasAdd":
            last = channel_axis(node) == len(layout(node)) - 1
            if index == 0 or last != (axis == -1) or (not last and tensor.rank != 1 - axis):
                return "BiasAdd adds along another dimension"
            axis = -1
        if along_axis(value.array(), count, axis, tensor.rank) is None:
            return f"the constant of {node.op} is not one number for each channel"
        self._offsets.append(ScaledConstant(node, index, value.array(), tensor))
        return tensor

    def _joined(self, node: Node, found: Sequence[ScaledTensor | None]) -> Passed:
        """The channels of a sum or an extreme of several tensors, whose scales must be equal."""
        first = found[0]
        if node.op not in _JOINS or first is None:
            return f"its channels go to {node.op} with others"
        for other in found[1:]:
            if other is None or not first.like(other):
                return f"its channels go to {node.op} with others"
            self._variables.join(first.ids, other.ids)
        return first

    def _concatenated(self, node: Node, found: Sequence[ScaledTensor | None]) -> Passed:
        tensors = [t for t in found[:-1] if t is not None]
        first = tensors[0] if tensors else None
        places = {(t.axis, t.rank) for t in tensors}
        if first is None or len(tensors) < len(found) - 1 or len(places) > 1:
            return "its channels are joined with others that are not scaled"
        out = joined(node, tensors, self._constants.value(node.data_inputs[-1]))
        if isinstance(out, str) or out is not first:
            return out
        for other in tensors[1:]:
            if not first.like(other):
                return "its channels are joined with others that are not scaled"
            self._variables.join(first.ids, other.ids)
        return out

    def _shape_of(self, ref: Ref) -> TensorShape:
        return shape_of(self._shapes, ref)

    @cached_property
    def _shapes(self) -> Mapping[str, Shapes]:
        return shapes_if_valid(self._graph)
