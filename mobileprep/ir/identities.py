"""Looks through nodes that pass a tensor on as it is."""

from __future__ import annotations

from typing import Final

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Tensor

IDENTITIES: Final = frozenset({"Identity", "Snapshot", "StopGradient", "PreventGradient"})
"""Ops whose only output is their only input; they differ in training alone."""


def source_behind(graph: Graph, ref: Ref) -> Ref:
    """The tensor that a reference leads to through nothing but identities."""
    seen: set[str] = set()
    while True:
        node = graph[ref.node]
        if node.op not in IDENTITIES or not node.data_inputs or node.name in seen:
            return ref
        seen.add(node.name)
        ref = node.data_inputs[0]


def node_behind(graph: Graph, ref: Ref) -> Node:
    """The node that a reference leads to through nothing but identities."""
    return graph[source_behind(graph, ref).node]


def constant_behind(graph: Graph, ref: Ref) -> Tensor | None:
    """The value of the constant that a reference leads to, or None where it is none."""
    node = node_behind(graph, ref)
    return node.attr_tensor("value") if node.op == "Const" else None
