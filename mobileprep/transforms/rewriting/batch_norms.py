"""Scale and offset of batch normalization ops with constant statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph.bypass import node_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import FUSED_BATCH_NORMS, GLOBAL_BATCH_NORM
from mobileprep.graph.reachability import SWITCHES, closure
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.graph.verify import check_inputs

_FUSED_ORDER: Final = ("gamma", "beta", "mean", "variance")
_GLOBAL_ORDER: Final = ("mean", "variance", "beta", "gamma")


class Statistics(Struct, frozen=True):
    """The constants of a batch normalization, each of shape [channels] if valid."""

    mean: Tensor
    variance: Tensor
    beta: Tensor
    gamma: Tensor

    def misshapen(self) -> str:
        """Return the name of the constant that is not a vector as long as the mean, or ""."""
        if len(self.mean.shape) != 1:
            return "mean"
        for name in ("variance", "beta", "gamma"):
            if getattr(self, name).shape != self.mean.shape:
                return name
        return ""

    @property
    def all_float(self) -> bool:
        """Whether all of them are float32, the type that the arithmetic is defined for."""
        tensors = (self.mean, self.variance, self.beta, self.gamma)
        return all(t.dtype is DType.FLOAT for t in tensors)


def statistics(norm: Node, values: Sequence[Tensor]) -> Statistics:
    """Return the statistics of a batch normalization op."""
    order = _FUSED_ORDER if norm.op in FUSED_BATCH_NORMS else _GLOBAL_ORDER
    return Statistics(**dict(zip(order, values, strict=True)))


def epsilon(norm: Node) -> float:
    """Return the op's epsilon; only the fused forms have a default."""
    if norm.op in FUSED_BATCH_NORMS:
        return norm.attr_float("epsilon", 1e-4)
    return norm.attr_float("variance_epsilon")


def uses_gamma(norm: Node) -> bool:
    """Return whether the op scales the normalized values."""
    return norm.op in FUSED_BATCH_NORMS or norm.attr_bool("scale_after_normalization")


def is_inference(norm: Node) -> bool:
    """Return whether the op uses its constants instead of batch statistics."""
    return norm.op == GLOBAL_BATCH_NORM or not norm.attr_bool("is_training", True)


def scale_and_offset(norm: Node, stats: Statistics) -> tuple[Array, Array]:
    """Return the factor and the offset of each channel, both float32 of shape [channels].

    The order of operations is that of the original, in single precision, so that results are
    bit-identical: ``(1 / sqrt(variance + epsilon)) * gamma`` and ``-mean * scale + beta``.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = np.float32(1) / np.sqrt(stats.variance.array() + np.float32(epsilon(norm)))
        if uses_gamma(norm):
            scale = scale * stats.gamma.array()
        offset = -stats.mean.array() * scale + stats.beta.array()
    return scale, offset


# Index of the variance input.
_VARIANCE_INPUT: Final = {
    "FusedBatchNorm": 4,
    "FusedBatchNormV2": 4,
    "FusedBatchNormV3": 4,
    "BatchNormWithGlobalNormalization": 2,
    "Rsqrt": 0,
    "Sqrt": 0,
}
_PASSING: Final = frozenset({"Add", "AddV2", "Merge", "RefMerge"})


def variances(graph: Graph) -> frozenset[str]:
    """Return the constants whose square root is a divisor, where small values matter the most.

    These are the constants that reach the variance of a batch normalization op, or Rsqrt or Sqrt,
    only through Identity, branches of conditionals, and additions, such as of the epsilon.
    """
    check_inputs(graph, "")
    names: set[str] = set()
    for node in graph:
        index = _VARIANCE_INPUT.get(node.op)
        if index is not None and index < len(node.data_inputs):
            names.update(_constants(graph, node.data_inputs[index]))
    return frozenset(names)


def _constants(graph: Graph, ref: Ref) -> Iterator[str]:
    def before(name: str) -> Iterator[str]:
        return (node_behind(graph, r).name for r in _passed(graph[name]))

    names = closure([node_behind(graph, ref).name], before)
    return (name for name in names if graph[name].op == "Const")


def _passed(node: Node) -> tuple[Ref, ...]:
    """Return the inputs of a node that only adds or selects."""
    if node.op in SWITCHES:
        return node.data_inputs[:1]
    return node.data_inputs if node.op in _PASSING else ()
