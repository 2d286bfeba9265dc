"""Match the ops of a device's log to the nodes of the model that ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mobileprep.graph.graph import Graph
from mobileprep.inspection.device_logs import OpTime
from mobileprep.runtime.accounting.costs import NodeCost
from mobileprep.targets.measurements import MeasuredOp
from mobileprep.targets.op_classes import HEAVY_CLASSES, ClassCost, class_costs, op_class

# Nodes between a fused op, which has the name of its last node, and its convolution or product.
_MAX_FUSED: Final = 8
# XNNPACK computes convolutions with windows of one element as products.
_INTERCHANGEABLE: Final = frozenset({"convolution", "product"})


def measured_ops(
    ops: Sequence[OpTime], graph: Graph, nodes: Sequence[NodeCost]
) -> tuple[MeasuredOp, ...]:
    """Return the ops of a log with the costs of their nodes, as far as they match.

    TensorFlow names nodes, and fused ops by their last node. LiteRT's delegates number their ops in
    the order of the model: convolutions and products match in this order if their numbers agree.
    """
    by_name = {node.name: node for node in nodes}
    matches = [_named(op, graph, by_name) for op in ops]
    if not any(matches):
        matches = _in_order(ops, nodes)
    return tuple(
        MeasuredOp(op.op, op.name, op.ms, None if node is None else _cost(node))
        for op, node in zip(ops, matches, strict=True)
    )


def _cost(node: NodeCost) -> ClassCost:
    return class_costs([node])[0]


def _named(op: OpTime, graph: Graph, costs: Mapping[str, NodeCost]) -> NodeCost | None:
    """Return the node of an op, which may be fused with others that follow it."""
    node, kind = graph.get(op.name), op_class(op.op)
    for _ in range(_MAX_FUSED):
        if node is None:
            return None
        if node.name in costs and op_class(node.op) == kind:
            return costs[node.name]
        if kind not in HEAVY_CLASSES or not node.data_inputs:
            return None
        node = graph.get(node.data_inputs[0].node)
    return None


def _in_order(ops: Sequence[OpTime], nodes: Sequence[NodeCost]) -> list[NodeCost | None]:
    """Return the convolution or product of each op; None for other ops, or if numbers differ."""
    places = [i for i, op in enumerate(ops) if op_class(op.op) in HEAVY_CLASSES and op.count == 1]
    heavy = [node for node in nodes if op_class(node.op) in HEAVY_CLASSES]
    matches: list[NodeCost | None] = [None] * len(ops)
    pairs = list(zip(places, heavy, strict=False))
    kinds = ({op_class(ops[i].op), op_class(node.op)} for i, node in pairs)
    if len(places) != len(heavy) or not all(len(k) == 1 or k == _INTERCHANGEABLE for k in kinds):
        return matches
    for place, node in pairs:
        matches[place] = node
    return matches
