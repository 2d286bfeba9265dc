"""Nodes taken out in rounds, as 1.15 does."""

from __future__ import annotations

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.transforms.node_removal import remove_in_rounds
from tests.transforms.graphs import const, node, placeholder


def left(*nodes: Node, most: int = 1, kept: tuple[str, ...] = ()) -> Graph:
    return remove_in_rounds(Graph(nodes), ("Identity", "Sink"), most, kept).graph


def inputs(graph: Graph, name: str) -> list[str]:
    return [str(r) for r in graph[name].inputs]


CHAIN = [
    placeholder(),
    node("a", "Identity", "x"),
    node("b", "Identity", "a"),
    node("c", "Identity", "b"),
    node("out", "Relu", "c ^b"),
]


def test_chains_go_whole_and_control_inputs_follow() -> None:
    graph = left(*CHAIN)
    assert [n.name for n in graph] == ["x", "out"]
    assert inputs(graph, "out") == ["x", "^x"]


def test_each_node_is_counted() -> None:
    assert remove_in_rounds(Graph(CHAIN), ("Identity",), 1, ()).matched == 3


def test_protected_node_stays_with_a_warning() -> None:
    done = remove_in_rounds(Graph(CHAIN), ("Identity",), 1, ("b",))
    assert {n.name for n in done.graph} == {"x", "b", "out"}
    assert inputs(done.graph, "out") == ["b", "^b"]
    assert inputs(done.graph, "b") == ["x"]
    assert done.matched == 2


def test_where_nothing_goes_the_graph_is_the_same_object() -> None:
    graph = Graph([placeholder(), node("out", "Relu", "x")])
    done = remove_in_rounds(graph, ("Identity",), 1, ())
    assert done.graph is graph
    assert done.matched == 0


def test_only_nodes_of_few_enough_inputs_go() -> None:
    nodes = [placeholder(), const("c", 1.0), node("s", "Sink", "x c"), node("out", "Relu", "s")]
    assert "s" in left(*nodes, most=1)
    assert inputs(left(*nodes, most=2), "out") == ["x"]


def test_used_second_inputs_stay() -> None:
    nodes = [
        placeholder(),
        const("c", 1.0),
        const("d", 2.0),
        node("s", "Sink", "x c"),
        node("t", "Sink", "s d"),
        node("out", "Add", "t c"),
    ]
    graph = left(*nodes, most=2)
    assert {n.name for n in graph} == {"x", "c", "out"}
    assert inputs(graph, "out") == ["x", "c"]


def test_branch_dependency_stays_with_a_reason() -> None:
    """Waiting for the Switch would be waiting for neither of its branches."""
    nodes = [
        placeholder("p", DType.BOOL),
        placeholder(),
        node("switch", "Switch", "x p"),
        node("pivot", "Identity", "switch:1"),
        const("c", 1.0, inputs="^pivot"),
        node("out", "Relu", "c"),
    ]
    done = remove_in_rounds(Graph(nodes), ("Identity",), 1, ())
    assert "pivot" in done.graph
    assert sum(done.skipped.values()) == 1
