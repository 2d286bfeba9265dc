"""Remove unused functions from the library of a graph."""

from __future__ import annotations

from collections.abc import Iterable

from mobileprep.graph.graph import Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import closure


def drop_unused_functions(graph: Graph) -> Graph:
    """Keep only the functions that the nodes of a graph reach, and their gradients."""
    library = graph.library
    if not library.functions:
        return graph
    used = closure(
        _called(graph.nodes, library),
        lambda name: _called(library.functions[name].nodes, library),
    )
    if len(used) == len(library.functions):
        return graph
    functions = {k: v for k, v in library.functions.items() if k in used}
    gradients = tuple((f, g) for f, g in library.gradients if f in used and g in used)
    return Graph(graph.nodes, Library(functions, gradients), graph.versions)


def _called(nodes: Iterable[Node], library: Library) -> set[str]:
    names = set()
    for node in nodes:
        names.add(node.op)
        for value in node.attrs.values():
            if value.kind == "func":
                names.add(value.value.name)
            elif value.kind == "list(func)":
                names.update(f.name for f in value.value)
    return names & library.functions.keys()
