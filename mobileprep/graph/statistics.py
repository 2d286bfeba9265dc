"""Statistics of graphs: numbers of nodes, parameters, and ops."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array, Tensor


class GraphStatistics(Struct, frozen=True):
    """Size and contents of a graph.

    Args:
        nodes: number of nodes, including those in function bodies.
        parameters: total number of elements of all constants.
        constants: number of Const nodes.
        bytes: size of the serialized graph.
        ops: number of nodes of each op, including those in function bodies, by name.
    """

    nodes: int
    parameters: int
    constants: int
    bytes: int
    ops: Mapping[str, int]


def graph_statistics(graph: Graph, size: int) -> GraphStatistics:
    """Compute the statistics of a graph whose serialized form has ``size`` bytes."""
    ops: Counter[str] = Counter()
    parameters = 0
    bodies = [f.nodes for f in graph.library.functions.values()]
    for nodes in (graph.nodes, *bodies):
        for node in nodes:
            ops[node.op] += 1
            if node.op == "Const":
                parameters += node.attr_tensor("value").size
    return GraphStatistics(ops.total(), parameters, ops["Const"], size, dict(sorted(ops.items())))


NO_STATISTICS: Final = "no data is named, and the graph has no statistics of batch normalizations"
NO_STATISTICS_HINT: Final = (
    "name a .npz file with samples, or write {fuse_batch_norms: {keep_statistics: true}} before"
)
_MEANS: Final = "_channel_means"
_DEVIATIONS: Final = "_channel_deviations"


class ChannelStatistics(Struct, frozen=True):
    """Mean and standard deviation of each channel of a tensor.

    Args:
        means: float64 [channels].
        deviations: standard deviations, not negative; float64 [channels].
    """

    means: Array
    deviations: Array


def with_statistics(node: Node, statistics: ChannelStatistics) -> Node:
    """Return the node with the statistics of its outputs, rounded to float32."""
    arrays = {_MEANS: statistics.means, _DEVIATIONS: statistics.deviations}
    tensors = {name: Tensor.packed(values.astype(np.float32)) for name, values in arrays.items()}
    more = {name: attr.tensor(tensor) for name, tensor in tensors.items()}
    return replace(node, attrs={**node.attrs, **more})


def statistics_of(node: Node, channels: int) -> ChannelStatistics | None:
    """Return the statistics of a node for this number of channels; None if missing or invalid."""
    if not {_MEANS, _DEVIATIONS} <= node.attrs.keys():
        return None
    tensors = [node.attr_tensor(name) for name in (_MEANS, _DEVIATIONS)]
    if any(t.shape != (channels,) or not t.dtype.is_floating for t in tensors):
        return None
    means, deviations = (t.array().astype(np.float64) for t in tensors)
    if not (np.isfinite(means) & np.isfinite(deviations) & (deviations >= 0)).all():
        return None
    return ChannelStatistics(means, deviations)


def changed_statistics(node: Node, factors: Array | float, offsets: Array | float) -> Node:
    """Update the statistics of a node whose channels are scaled and then shifted."""
    if _MEANS not in node.attrs:
        return node
    statistics = statistics_of(node, math.prod(node.attr_tensor(_MEANS).shape))
    if statistics is None:
        return node
    means = statistics.means * factors + offsets
    return with_statistics(node, ChannelStatistics(means, statistics.deviations * factors))


def without_statistics(graph: Graph) -> Graph:
    """Remove all statistics from a graph; return the same graph if it has none."""
    names = {_MEANS, _DEVIATIONS}
    if not any(names & node.attrs.keys() for node in graph):
        return graph
    return graph.with_nodes(_bare(node, names) for node in graph)


def _bare(node: Node, names: set[str]) -> Node:
    if not names & node.attrs.keys():
        return node
    return replace(node, attrs={k: v for k, v in node.attrs.items() if k not in names})
