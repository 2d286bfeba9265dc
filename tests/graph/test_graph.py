"""Graphs and lookups by name."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import OpDef
from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.statistics import GraphStatistics, graph_statistics
from mobileprep.graph.tensor import Tensor


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


def test_functions_count_and_splats_are_not_expanded() -> None:
    huge = Tensor(DType.FLOAT, (1 << 40,), values=np.zeros(1, np.float32))
    body = (Node("n", "Relu"), constant("k", Tensor.of(np.zeros(3, np.float32))))
    graph = Graph(
        [Node("a", "Relu"), constant("c", huge), Node("b", "f")],
        Library({"f": Function(OpDef("f"), body)}),
    )
    assert graph_statistics(graph, 123) == GraphStatistics(
        nodes=5,
        parameters=(1 << 40) + 3,
        constants=2,
        bytes=123,
        ops={"Const": 2, "Relu": 2, "f": 1},
    )


def test_ops_are_sorted() -> None:
    graph = Graph([Node(n, op) for n, op in (("x", "Relu"), ("y", "Add"), ("z", "MatMul"))])
    assert list(graph_statistics(graph, 0).ops) == ["Add", "MatMul", "Relu"]


def test_empty_graph_is_all_zeros() -> None:
    assert graph_statistics(Graph(), 0) == GraphStatistics(0, 0, 0, 0, {})


def test_constant_without_value_is_an_error() -> None:
    with pytest.raises(InvalidGraphError, match="has no tensor attribute 'value'"):
        graph_statistics(Graph([Node("c", "Const")]), 0)
