"""Resolve control flow v1 conditionals with known conditions."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from msgspec.structs import replace

from mobileprep.graph import attrs as attr
from mobileprep.graph.bypass import source_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.reachability import without_dangling
from mobileprep.graph.refs import Ref, unique_name
from mobileprep.graph.tensor import Tensor


def resolve_branches(
    graph: Graph, values: Mapping[str, bool], protected: Collection[str]
) -> Graph | str:
    """Return the graph with only the branches that run for the given boolean node values.

    Switch and Merge become Identity. Consumers of a known value use a constant instead; the nodes
    themselves are kept only if protected. Returns the reason on failure.
    """
    choice = _Choice(graph, values)
    dead = choice.dead()
    if dead & frozenset(protected):
        return "an output is in the training branch"
    merges = {n.name for n in graph if n.op == "Merge"}
    if any(r.index == 1 and r.node in merges for n in graph for r in n.inputs):
        return "the branch decision is used as a number"
    nodes = [m for n in graph if n.name not in dead for m in choice.decided(n, dead, protected)]
    return graph.with_nodes(without_dangling(nodes, {n.name for n in nodes}))


class _Choice:
    def __init__(self, graph: Graph, values: Mapping[str, bool]) -> None:
        self._graph = graph
        self._values = values
        self._names = {n: unique_name(f"{n}/inference", graph.by_name) for n in values}
        self._live: dict[str, int] = {}
        for node in graph:
            name = condition(graph, node)
            if name in values:
                self._live[node.name] = int(values[name])

    def dead(self) -> frozenset[str]:
        """Return the nodes that do not run."""
        dead: set[str] = set()
        waiting = list(self._graph)
        while waiting:
            node = waiting.pop()
            if node.name not in dead and self._is_dead(node, dead):
                dead.add(node.name)
                waiting += self._graph.consumers.get(node.name, ())
        return frozenset(dead)

    def decided(
        self, node: Node, dead: Collection[str], protected: Collection[str]
    ) -> tuple[Node, ...]:
        """Return the replacement for a node that runs."""
        if node.name in self._values:
            value = Tensor.of(np.array(self._values[node.name]))
            number = constant(self._names[node.name], value)
            return (node, number) if node.name in protected else (number,)
        refs = [r for r in node.inputs if not (r.is_control and r.node in self._values)]
        if node.op == "Merge":
            refs = [r for r in refs if not self._is_dead_ref(r, dead)]
        inputs = tuple(self._rewired(r) for r in refs)
        if node.name in self._live:
            controls = (r for r in inputs[2:] if r.is_control)
            return (_identity(node, (inputs[0], *controls)),)
        tensors = [r for r in inputs if not r.is_control]
        if node.op == "Merge" and len(tensors) < len(node.data_inputs):
            if len(tensors) == 1:
                return (_identity(node, inputs),)
            return (replace(node, inputs=inputs).with_attrs(N=attr.integer(len(tensors))),)
        return (node if inputs == node.inputs else replace(node, inputs=inputs),)

    def _is_dead(self, node: Node, dead: Collection[str]) -> bool:
        if node.op == "Merge":
            return all(self._is_dead_ref(r, dead) for r in node.data_inputs)
        return any(self._is_dead_ref(r, dead) for r in node.inputs)

    def _is_dead_ref(self, ref: Ref, dead: Collection[str]) -> bool:
        live = self._live.get(ref.node)
        gated = live is not None and not ref.is_control and ref.index != live
        return gated or ref.node in dead

    def _rewired(self, ref: Ref) -> Ref:
        if ref.node in self._values:
            return Ref(self._names[ref.node])
        if ref.node in self._live and not ref.is_control:
            return Ref(ref.node)
        return ref


def condition(graph: Graph, node: Node) -> str:
    """Return the name of the node that controls a Switch; empty for other ops."""
    if node.op != "Switch" or len(node.data_inputs) != 2:
        return ""
    return source_behind(graph, node.data_inputs[1]).node


def _identity(node: Node, inputs: tuple[Ref, ...]) -> Node:
    return Node(node.name, "Identity", inputs, node.device, {"T": node.attribute("T")})
