"""Nodes that scale and shift a layer's output, with one factor and one offset per channel."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import BATCH_NORMS, SCALINGS
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.transforms.rewriting.batch_norms import (
    epsilon,
    is_inference,
    statistics,
    uses_gamma,
)
from mobileprep.transforms.rewriting.clipping import ConstantExpressions
from mobileprep.transforms.rewriting.layers import (
    along_axis,
    channel_axis,
    layer_kind,
    layout,
    output_axis,
)

SUMS: Final = frozenset({"Add", "AddV2", "Sub", "BiasAdd"})
MISFIT: Final = "its statistics have not as many channels as the weights"


class Affine(Struct, frozen=True):
    """``scale * x + offset``; float64 of shape [channels], or None for one and for zero."""

    scale: Array | None = None
    offset: Array | None = None

    def then(self, after: Affine) -> Affine:
        """Return this map followed by another one."""
        if after.scale is None:
            return Affine(self.scale, _sum(self.offset, after.offset))
        scale = after.scale if self.scale is None else self.scale * after.scale
        moved = None if self.offset is None else self.offset * after.scale
        return Affine(scale, _sum(moved, after.offset))

    @property
    def is_finite(self) -> bool:
        """Whether all values are finite."""
        return all(a is None or bool(np.isfinite(a).all()) for a in (self.scale, self.offset))


class Channels(Struct, frozen=True):
    """The channels of a tensor that is scaled and shifted.

    Args:
        layer: the layer that outputs them.
        count: the number of channels.
        constants: the graph's constants.
        axis: the dimension of the channels, counted from the last: -1.
        rank: the rank of the tensor; None if unknown.
    """

    layer: Node
    count: int
    constants: ConstantExpressions
    axis: int
    rank: int | None

    @classmethod
    def of(cls, layer: Node, count: int, constants: ConstantExpressions) -> Channels:
        """Return the channels of a layer's own output."""
        return cls(layer, count, constants, output_axis(layer), layer_kind(layer).rank)

    def read(self, node: Node, source: Ref) -> Affine | str:
        """Return a node's map of each channel, or why it has none; empty for unrelated nodes."""
        if node.op == "Identity":
            return Affine()
        if node.op in BATCH_NORMS:
            return self._norm(node, source)
        if node.op == "BiasAdd" and not self._runs_along(node):
            return "a node differs in data_format"
        if (node.op not in SUMS and node.op not in SCALINGS) or len(node.data_inputs) != 2:
            return ""
        return self._arithmetic(node, source)

    def _arithmetic(self, node: Node, source: Ref) -> Affine | str:
        first, second = node.data_inputs
        constant = self.constants.value(second if first == source else first)
        if constant is None or first == second:
            return ""
        other = self._vector(constant)
        if other is None:
            return "its constant is not one number for each channel"
        if node.op == "Sub":
            minus = np.full(self.count, -1.0)
            return Affine(None, -other) if first == source else Affine(minus, other)
        if node.op in SUMS:
            return Affine(None, other)
        if node.op == "Mul":
            return Affine(other)
        if first != source:
            return ""
        with np.errstate(divide="ignore"):
            return Affine(1 / other)

    def _norm(self, node: Node, source: Ref) -> Affine | str:
        if node.data_inputs[0] != source:
            return "the output of the layer is a statistic"
        if is_inference(node) and not self._runs_along(node):
            return "convolution and batch normalization differ in data_format"
        return norm_affine(node, self.constants, self.count)

    def _vector(self, value: Tensor) -> Array | None:
        if not value.dtype.is_floating:
            return None
        values = along_axis(value.array(), self.count, self.axis, self.rank)
        return None if values is None else values.astype(np.float64)

    def _runs_along(self, node: Node) -> bool:
        """Return whether a node expects the channels in the tensor's channel dimension."""
        last = channel_axis(node) == len(layout(node)) - 1
        return last == (self.axis == -1)


def norm_affine(norm: Node, constants: ConstantExpressions, count: int | None) -> Affine | str:
    """Return a batch normalization's map of each channel, or why it is not constant.

    Args:
        count: the required number of channels; None for any.
    """
    if not is_inference(norm):
        return "the batch normalization uses the batch's statistics (is_training)"
    values = [constants.value(r) for r in norm.data_inputs[1:]]
    tensors = [v for v in values if v is not None]
    if len(tensors) != 4:
        return "its statistics are not constant"
    stats = statistics(norm, tensors)
    fits = count is None or stats.mean.size == count
    if stats.misshapen() or not fits or not stats.all_float:
        return MISFIT
    mean, variance, beta, gamma = (
        t.array().astype(np.float64) for t in (stats.mean, stats.variance, stats.beta, stats.gamma)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 1 / np.sqrt(variance + epsilon(norm))
    if uses_gamma(norm):
        scale = scale * gamma
    return Affine(scale, beta - mean * scale)


def _sum(first: Array | None, second: Array | None) -> Array | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second
