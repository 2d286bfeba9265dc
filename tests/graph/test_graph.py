"""Graphs and lookups by name."""

from __future__ import annotations

import pytest

from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node
from mobileprep.graph.opdef import OpDef
from mobileprep.graph.refs import parse_ref


def node(name: str, *inputs: str) -> Node:
    return Node(name, "Op", tuple(parse_ref(t) for t in inputs))


GRAPH = Graph([node("a"), node("b", "a", "a:1"), node("c", "b", "^a"), node("d", "missing")])


def test_lookup_by_name() -> None:
    assert GRAPH["b"] is GRAPH.nodes[1]
    assert GRAPH.get("b") is GRAPH.nodes[1]
    assert GRAPH.get("x") is None
    assert ("b" in GRAPH, "x" in GRAPH) == (True, False)
    assert [n.name for n in GRAPH] == ["a", "b", "c", "d"]
    assert len(GRAPH) == 4
    with pytest.raises(KeyError):
        GRAPH["x"]


def test_last_node_of_a_duplicate_name_wins() -> None:
    nodes = [node("a"), node("a", "b")]
    assert Graph(nodes).by_name["a"] is nodes[1]


def test_consumers_are_unique_and_in_graph_order() -> None:
    consumers = {name: [n.name for n in nodes] for name, nodes in GRAPH.consumers.items()}
    assert consumers == {"a": ["b", "c"], "b": ["c"], "missing": ["d"]}


def test_with_nodes_keeps_library_and_versions() -> None:
    library = Library({"f": Function(OpDef("f"))})
    graph = Graph(GRAPH.nodes, library, Versions(27, 12))
    other = graph.with_nodes(iter(GRAPH.nodes[:1]))
    assert (other.library, other.versions, len(other)) == (library, Versions(27, 12), 1)
    assert len(graph) == 4


def test_empty_library_is_falsy() -> None:
    assert not Library()
    assert Library(gradients=(("f", "g"),))
    assert Function(OpDef("f")).name == "f"
