"""Scales channels of a graph, and all that has to be scaled along."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.formats.dtypes import DType
from mobileprep.ir import attrs as attr
from mobileprep.ir.channel_statistics import changed_statistics
from mobileprep.ir.graph import Graph
from mobileprep.ir.names import FreshNames
from mobileprep.ir.node import Node, constant
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Array, Tensor
from mobileprep.rewriting.channel_scales.scales import (
    Bound,
    ChannelScales,
    ScaledConstant,
    ScaledLayer,
)
from mobileprep.rewriting.channel_scales.variables import Ids, ScaledTensor
from mobileprep.rewriting.constant_expressions import ConstantExpressions
from mobileprep.rewriting.layers import input_axis, layer_kind, own_constant

Exponents = NDArray[np.float64]

_BOUND: Final = 6.0


def without_overflow(scales: ChannelScales, exponents: Exponents) -> Exponents:
    """The exponents, zero for the channels of weights that would grow beyond their type.

    Args:
        scales: what may be scaled.
        exponents: for each scale its logarithm to base two.
    """
    roots = scales.variables.roots()
    while True:
        lost = [_overflowing(layer, exponents) for layer in scales.layers]
        found = np.unique(roots[np.concatenate(lost)]) if lost else np.empty(0)
        if not (exponents[np.isin(roots, found)] != 0).any():
            return exponents
        exponents = np.where(np.isin(roots, found), 0.0, exponents)


def _overflowing(layer: ScaledLayer, exponents: Exponents) -> Ids:
    """The scales of the outputs and inputs of weights that are no numbers any more."""
    if not exponents[layer.outputs].any() and not _any(layer.inputs, exponents):
        return np.empty(0, np.int64)
    if np.isfinite(scaled_weights(layer, exponents)).all():
        return np.empty(0, np.int64)
    return layer.outputs if layer.inputs is None else np.concatenate([layer.outputs, layer.inputs])


def _any(ids: Ids | None, exponents: Exponents) -> bool:
    return ids is not None and bool(exponents[ids].any())


def apply_scales(
    graph: Graph, scales: ChannelScales, exponents: Exponents, protected: Collection[str]
) -> Graph:
    """The graph with each channel divided by two to the power of its scale's exponent.

    Args:
        graph: the graph in which the scales were found.
        scales: what may be scaled.
        exponents: for each scale its logarithm to base two.
        protected: names of nodes that must survive.
    """
    return _Applying(graph, exponents, protected).run(scales)


def scaled_weights(layer: ScaledLayer, exponents: Exponents) -> Array:
    """A layer's weights between scaled channels, in their own precision."""
    values = layer.weights.attr_tensor("value").array()
    columns = [1] * values.ndim
    for axis in layer_kind(layer.layer).channels:
        columns[axis] = values.shape[axis]
    by = -exponents[layer.outputs].reshape(columns)
    if layer.inputs is not None:
        rows = [1] * values.ndim
        rows[input_axis(layer.layer)] = len(layer.inputs)
        by = by + exponents[layer.inputs].reshape(rows)
    with np.errstate(over="ignore", under="ignore"):
        # A product with a power of two is rounded nowhere but at the ends of the type's range.
        return (values * np.exp2(by)).astype(values.dtype)


class _Applying:
    """Collects what takes the place of which node."""

    def __init__(self, graph: Graph, exponents: Exponents, protected: Collection[str]) -> None:
        self._graph = graph
        self._exponents = exponents
        self._protected = protected
        self._constants = ConstantExpressions(graph)
        self._names = FreshNames(graph.by_name)
        self._new: dict[str, list[Node]] = {}
        self._lost: list[str] = []

    def run(self, scales: ChannelScales) -> Graph:
        for layer in scales.layers:
            self._scale_weights(layer)
        for offset in scales.constants:
            self._scale_constant(offset)
        for bound in scales.bounds:
            self._scale_bound(bound)
        nodes = [n for old in self._graph for n in self._new.get(old.name, (old,))]
        now = self._graph.with_nodes(nodes)
        gone = self._constants.unused(now, self._lost, self._protected)
        return now.with_nodes(n for n in nodes if n.name not in gone)

    def _scale_weights(self, layer: ScaledLayer) -> None:
        if _any(layer.inputs, self._exponents) or _any(layer.outputs, self._exponents):
            self._replace(layer.weights, scaled_weights(layer, self._exponents))

    def _scale_constant(self, offset: ScaledConstant) -> None:
        """Scale a constant in place, or, where others use it too, give the node one of its own."""
        node, ref = offset.node, offset.node.data_inputs[offset.index]
        if not _any(offset.tensor.ids, self._exponents):
            return
        axis = -1 if node.op == "BiasAdd" else offset.tensor.axis
        scaled = offset.values * self._factors(offset.tensor, axis)
        if node.op == "BiasAdd":
            node = changed_statistics(node, self._factors(offset.tensor, -1), 0.0)
        own = own_constant(self._graph, ref, offset.node, self._protected)
        if own is not None:
            self._replace(own, scaled)
            self._new[node.name] = [node]
            return
        name = self._names.name(f"{node.name}/scaled")
        tensor = Tensor.packed(scaled.astype(offset.values.dtype))
        inputs = tuple(Ref(name) if i == offset.index else r for i, r in enumerate(node.inputs))
        self._lost.append(ref.node)
        self._new[node.name] = [
            constant(name, tensor, node.device, offset.tensor.ties),
            node.with_inputs(inputs),
        ]

    def _scale_bound(self, bound: Bound) -> None:
        """Relu6 as Relu and the lesser of that and each channel's bound."""
        node = bound.node
        if not _any(bound.tensor.ids, self._exponents):
            return
        dtype = node.attr_dtype("T", DType.FLOAT)
        value = _BOUND * self._factors(bound.tensor, bound.tensor.axis)
        limit = constant(
            self._names.name(f"{node.name}/bound"),
            Tensor.packed(value.astype(dtype.numpy), dtype),
            node.device,
            bound.tensor.ties,
        )
        relu = replace(node, name=self._names.name(f"{node.name}/relu"), op="Relu")
        both = (Ref(relu.name), Ref(limit.name))
        attrs = {"T": attr.dtype(dtype)}
        self._new[node.name] = [relu, limit, Node(node.name, "Minimum", both, node.device, attrs)]

    def _factors(self, tensor: ScaledTensor, axis: int) -> Array:
        """What channels are multiplied by, shaped to run along a dimension."""
        factors = np.exp2(-self._exponents[tensor.ids])
        return factors.reshape(-1, *[1] * (-axis - 1))

    def _replace(self, old: Node, values: Array) -> None:
        dtype = old.attr_tensor("value").dtype
        tensor = Tensor.packed(values.astype(dtype.numpy), dtype)
        self._new[old.name] = [constant(old.name, tensor, old.device, old.inputs)]
