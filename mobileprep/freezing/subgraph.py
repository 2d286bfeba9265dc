"""The part of a graph that its outputs need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mobileprep.ir.attrs import AttrValue
from mobileprep.ir.functions import drop_unused_functions
from mobileprep.ir.graph import Graph, Library
from mobileprep.ir.node import Node

_COLOCATION = "_class"
_COLOCATED_WITH = b"loc:@"


def reachable(graph: Graph, roots: Iterable[str], *, through_control: bool = True) -> set[str]:
    """The names of the roots and of all nodes that they depend on.

    Args:
        graph: every input must name one of its nodes.
        roots: node names.
        through_control: whether a control dependency counts.
    """
    names = graph.by_name
    seen = set(roots)
    waiting = list(seen)
    while waiting:
        for ref in names[waiting.pop()].inputs:
            if ref.node not in seen and (through_control or not ref.is_control):
                seen.add(ref.node)
                waiting.append(ref.node)
    return seen


def extract(graph: Graph, roots: Iterable[str]) -> Graph:
    """The roots and what they depend on, in the graph's order, with the functions they call."""
    keep = reachable(graph, roots)
    if len(keep) == len(graph):
        return graph
    nodes = [_colocated_within(n, keep) for n in graph if n.name in keep]
    return drop_unused_functions(graph.with_nodes(nodes))


def clear_devices(graph: Graph) -> Graph:
    """The graph with no device requested by any node, those inside functions included."""
    bodies = (f.nodes for f in graph.library.functions.values())
    if not any(n.device for nodes in (graph.nodes, *bodies) for n in nodes):
        return graph
    functions = {
        name: replace(f, nodes=tuple(_without_device(n) for n in f.nodes))
        for name, f in graph.library.functions.items()
    }
    nodes = [_without_device(n) for n in graph]
    return Graph(nodes, Library(functions, graph.library.gradients), graph.versions)


def _without_device(node: Node) -> Node:
    return replace(node, device="") if node.device else node


def _colocated_within(node: Node, keep: set[str]) -> Node:
    """A node to be placed beside one that is gone would make the graph unloadable."""
    value = node.attrs.get(_COLOCATION)
    if value is None or value.kind != "list(string)":
        return node
    left = tuple(
        s
        for s in value.value
        if not s.startswith(_COLOCATED_WITH)
        or s.removeprefix(_COLOCATED_WITH).decode("utf-8", "replace") in keep
    )
    if len(left) == len(value.value):
        return node
    if not left:
        return node.without_attrs(_COLOCATION)
    return node.with_attrs(**{_COLOCATION: AttrValue("list(string)", left)})
