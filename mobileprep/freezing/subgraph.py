"""The part of a graph that its outputs need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mobileprep.ir.colocation import without_dangling
from mobileprep.ir.functions import drop_unused_functions
from mobileprep.ir.graph import Graph, Library
from mobileprep.ir.node import Node
from mobileprep.ir.reachability import reachable


def extract(graph: Graph, roots: Iterable[str]) -> Graph:
    """The roots and what they depend on, in the graph's order, with the functions they call."""
    keep = reachable(graph, roots)
    if len(keep) == len(graph):
        return graph
    nodes = without_dangling((n for n in graph if n.name in keep), keep)
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
