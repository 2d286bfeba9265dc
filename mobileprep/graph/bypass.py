"""Remove nodes from a graph, and connect their consumers to replacements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import (
    SWITCHES,
    conditional_nodes,
    execution_order,
    without_dangling,
    without_newly_unused,
)
from mobileprep.graph.refs import Ref, control
from mobileprep.graph.rewrite import Rewritten
from mobileprep.graph.tensor import Tensor
from mobileprep.graph.verify import check_inputs

FED_OR_FETCHED: Final = "an input or output of the graph"
_LATER_OUTPUT: Final = "an output that nothing could replace is used"
_TELLS_BRANCH: Final = "it determines which branch runs"
_RUNS_IN_BRANCH: Final = "its control inputs decide whether it runs"
_WAITS: Final = "it waits for other nodes"


class Guards:
    """A search for nodes whose removal would change the results of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def reason(self, node: Node, sources: Sequence[Ref]) -> str:
        """Return the reason to keep a node, or an empty string."""
        if self._last_output.get(node.name, 0) >= len(sources):
            return _LATER_OUTPUT
        if node.name in self._awaited and self._graph[sources[0].node].op in SWITCHES:
            return _TELLS_BRANCH
        if any(r.is_control and r.node in self._conditional for r in node.inputs):
            return _RUNS_IN_BRANCH
        return ""

    @cached_property
    def _last_output(self) -> dict[str, int]:
        last: dict[str, int] = {}
        for node in self._graph:
            for ref in node.inputs:
                if ref.index > last.get(ref.node, 0):
                    last[ref.node] = ref.index
        return last

    @cached_property
    def _awaited(self) -> frozenset[str]:
        return frozenset(r.node for n in self._graph for r in n.inputs if r.is_control)

    @cached_property
    def _conditional(self) -> frozenset[str]:
        return conditional_nodes(self._graph)


class Bypass:
    """A removal of nodes, one by one, producers before consumers.

    Args:
        graph: the graph.
        protected: names of nodes to keep.

    Raises:
        InvalidGraphError: if an input does not exist.
    """

    def __init__(self, graph: Graph, protected: Collection[str]) -> None:
        check_inputs(graph, "")
        self._graph = graph
        self._protected = protected
        self._guards = Guards(graph)
        self._sources: dict[str, tuple[Ref, ...]] = {}
        self._skipped: Counter[str] = Counter()

    def source(self, ref: Ref) -> Ref:
        """Return the current replacement of a tensor or a control dependency."""
        replacements = self._sources.get(ref.node)
        if replacements is None:
            return ref
        return control(replacements[0].node) if ref.is_control else replacements[ref.index]

    def take_out(self, node: Node, *sources: Ref) -> bool:
        """Replace a node with ``sources``, unless that would change results.

        The sources may themselves be outputs of removed nodes. Return whether the node was removed.
        """
        reason = self._reason(node, [self.source(s) for s in sources])
        if reason:
            self._skipped[reason] += 1
            return False
        self._sources[node.name] = tuple(self.source(s) for s in sources)
        return True

    def leave(self, reason: str) -> None:
        """Count a node that the caller keeps, by reason."""
        self._skipped[reason] += 1

    def result(self, *, with_unused: bool = True) -> Rewritten:
        """Return the graph without the removed nodes."""
        graph = self._graph
        if not self._sources:
            return Rewritten(graph, skipped=self._skipped)
        result = graph.with_nodes(
            self._reconnected(n) for n in graph if n.name not in self._sources
        )
        if with_unused:
            result = result.with_nodes(without_dangling(result.nodes, result.by_name))
        else:
            result = without_newly_unused(graph, result, self._protected)
        return Rewritten(result, len(self._sources), self._skipped)

    def _reason(self, node: Node, sources: Sequence[Ref]) -> str:
        if node.name in self._protected:
            return FED_OR_FETCHED
        return self._guards.reason(node, sources) or (_WAITS if node.control_inputs else "")

    def _reconnected(self, node: Node) -> Node:
        if not any(r.node in self._sources for r in node.inputs):
            return node
        tensors = [self.source(r) for r in node.data_inputs]
        controls = dict.fromkeys(self.source(r) for r in node.control_inputs)
        return replace(node, inputs=(*tensors, *controls))


IDENTITIES: Final = frozenset({"Identity", "Snapshot", "StopGradient", "PreventGradient"})
"""Ops that return their only input unchanged; they differ only in training."""


def source_behind(graph: Graph, ref: Ref) -> Ref:
    """Return the tensor that a reference leads to through identities."""
    seen: set[str] = set()
    while True:
        node = graph[ref.node]
        if node.op not in IDENTITIES or not node.data_inputs or node.name in seen:
            return ref
        seen.add(node.name)
        ref = node.data_inputs[0]


def node_behind(graph: Graph, ref: Ref) -> Node:
    """Return the node that a reference leads to through identities."""
    return graph[source_behind(graph, ref).node]


def constant_behind(graph: Graph, ref: Ref) -> Tensor | None:
    """Return the value of the constant that a reference leads to, or None."""
    node = node_behind(graph, ref)
    return node.attr_tensor("value") if node.op == "Const" else None


_IDLE: Final = IDENTITIES | {"Const", "NoOp"}


def without_idle_controls(graph: Graph, protected: Collection[str]) -> Graph:
    """Remove control inputs on constants, and nodes that only these edges kept.

    Constants, and Identity and NoOp nodes that only depend on constants, impose no order.
    TensorFlow 2 creates many such edges, from each weight to one NoOp, which then count as uses of
    the weights. Edges from a constant that waits for a Switch or an Enter are kept, because it is
    in a branch or a loop.
    """
    if not any(r.is_control for n in graph for r in n.inputs):
        return graph
    idle = _idle(graph)
    nodes = []
    for node in graph:
        inputs = tuple(r for r in node.inputs if not (r.is_control and r.node in idle))
        nodes.append(node if len(inputs) == len(node.inputs) else replace(node, inputs=inputs))
    if all(a is b for a, b in zip(nodes, graph, strict=True)):
        return graph
    return without_newly_unused(graph, graph.with_nodes(nodes), protected)


def _idle(graph: Graph) -> frozenset[str]:
    """Return the nodes that wait for nothing."""
    idle: set[str] = set()
    for node in execution_order(graph):
        if node.op in _IDLE and all(r.node in idle for r in node.inputs):
            idle.add(node.name)
    return frozenset(idle)
