"""Graphs and their look-ups."""

from __future__ import annotations

import pytest

from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node
from mobileprep.graph.opdef import OpDef
from mobileprep.graph.refs import parse_ref


def node(name: str, *inputs: str) -> Node:
    return Node(name, "Op", tuple(parse_ref(t) for t in inputs))


GRAPH = Graph([node("a"), node("b", "a", "a:1"), node("c", "b", "^a"), node("d", "missing")])


def test_nodes_are_found_by_name() -> None:
    assert GRAPH["b"] is GRAPH.nodes[1]
    assert GRAPH.get("b") is GRAPH.nodes[1]
    assert GRAPH.get("x") is None
    assert ("b" in GRAPH, "x" in GRAPH) == (True, False)
    assert [n.name for n in GRAPH] == ["a", "b", "c", "d"]
    assert len(GRAPH) == 4
    with pytest.raises(KeyError):
        GRAPH["x"]


def test_of_two_nodes_with_one_name_the_later_is_found() -> None:
    nodes = [node("a"), node("a", "b")]
    assert Graph(nodes).by_name["a"] is nodes[1]


def test_consumers_come_once_and_in_order() -> None:
    consumers = {name: [n.name for n in nodes] for name, nodes in GRAPH.consumers.items()}
    assert consumers == {"a": ["b", "c"], "b": ["c"], "missing": ["d"]}


def test_other_nodes_keep_library_and_versions() -> None:
    library = Library({"f": Function(OpDef("f"))})
    graph = Graph(GRAPH.nodes, library, Versions(27, 12))
    other = graph.with_nodes(iter(GRAPH.nodes[:1]))
    assert (other.library, other.versions, len(other)) == (library, Versions(27, 12), 1)
    assert len(graph) == 4


def test_an_empty_library_is_none() -> None:
    assert not Library()
    assert Library(gradients=(("f", "g"),))
    assert Function(OpDef("f")).name == "f"
