"""Which nodes have to run, and in which order."""

from __future__ import annotations

import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError, UsageError
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from mobileprep.runtime.selection import needed_nodes, refuse
from tests.transforms.graphs import node, placeholder

GRAPH = Graph(
    [
        node("sum", "AddV2", "left right"),
        node("right", "Relu", "x ^note"),
        node("left", "Neg", "inner"),
        node("inner", "Relu", "x"),
        placeholder(),
        node("note", "NoOp"),
        node("unused", "Relu", "x"),
    ]
)


def needed(graph: Graph, fetches: str, fed: tuple[str, ...] = ()) -> list[str]:
    edges = {(name, 0) for name in fed}
    found = needed_nodes(graph, map(parse_ref, fetches.split()), edges, "g.pb")
    return [n.name for n in found]


def test_each_branch_is_finished_before_the_next() -> None:
    assert needed(GRAPH, "sum") == ["x", "inner", "left", "note", "right", "sum"]


def test_fetches_are_met_in_their_order() -> None:
    assert needed(GRAPH, "right left") == ["x", "note", "right", "inner", "left"]


def test_what_is_fed_needs_nothing() -> None:
    assert needed(GRAPH, "sum", ("left",)) == ["x", "note", "right", "sum"]
    assert needed(GRAPH, "left", ("left",)) == []
    assert needed(GRAPH, "right", ("x", "note")) == ["right"]


def test_a_missing_input_is_told_with_the_nearest_name() -> None:
    graph = Graph([placeholder("images"), node("y", "Relu", "image")])
    with pytest.raises(InvalidGraphError) as caught:
        needed(graph, "y")
    assert caught.value.message == "node 'y' (Relu) takes 'image', which does not exist"
    assert "'images'" in caught.value.hint


def test_a_circle_is_told_unless_it_is_cut_by_a_feed() -> None:
    graph = Graph([node("a", "Relu", "b"), node("b", "Relu", "a")])
    with pytest.raises(InvalidGraphError, match="feed each other in a circle"):
        needed(graph, "a")
    assert needed(graph, "a", ("b",)) == ["a"]


def test_loops_close_at_their_heads() -> None:
    loop = [
        placeholder(),
        node("enter", "Enter", "x"),
        node("head", "Merge", "enter next"),
        node("step", "Relu", "head"),
        node("next", "NextIteration", "step"),
    ]
    assert needed(Graph(loop), "step") == ["x", "enter", "head", "step", "next"]


def refused(*nodes: Node) -> UnsupportedError:
    with pytest.raises(UnsupportedError) as caught:
        refuse(nodes, "g.pb")
    return caught.value


def test_nodes_that_cannot_run_are_counted() -> None:
    refuse([], "g.pb")
    one = refused(node("a", "Zeta"))
    assert one.message == "node 'a' has the op 'Zeta', which cannot be run here"
    three = refused(node("a", "Zeta"), node("b", "Alpha"), node("c", "Zeta"))
    assert three.message.endswith("(of the 3 nodes that cannot, the ops are Alpha, Zeta)")
    assert "freeze" not in three.hint
    assert "mobileprep freeze" in refused(node("a", "Zeta"), node("v", "VariableV2")).hint


@pytest.mark.parametrize(
    ("names", "told"), [("x", "placeholder 'x'"), ("x z", "placeholders 'x', 'z'")]
)
def test_placeholders_come_first(names: str, told: str) -> None:
    lacking = [node("a", "Zeta"), *map(placeholder, names.split())]
    with pytest.raises(UsageError) as caught:
        refuse(lacking, "g.pb")
    assert caught.value.message == f"nothing is fed to the {told}"
