"""Selection and order of nodes to run."""

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
    nodes = needed_nodes(graph, map(parse_ref, fetches.split()), edges, "g.pb")
    return [n.name for n in nodes]


def test_nodes_run_depth_first() -> None:
    assert needed(GRAPH, "sum") == ["x", "inner", "left", "note", "right", "sum"]


def test_fetches_are_ordered() -> None:
    assert needed(GRAPH, "right left") == ["x", "note", "right", "inner", "left"]


def test_fed_tensors_need_no_inputs() -> None:
    assert needed(GRAPH, "sum", ("left",)) == ["x", "note", "right", "sum"]
    assert needed(GRAPH, "left", ("left",)) == []
    assert needed(GRAPH, "right", ("x", "note")) == ["right"]


def test_missing_input_suggests_closest_name() -> None:
    graph = Graph([placeholder("images"), node("y", "Relu", "image")])
    with pytest.raises(InvalidGraphError) as error:
        needed(graph, "y")
    assert error.value.message == "node 'y' (Relu) takes 'image', which does not exist"
    assert "'images'" in error.value.hint


def test_cycle_is_refused_unless_fed() -> None:
    graph = Graph([node("a", "Relu", "b"), node("b", "Relu", "a")])
    with pytest.raises(InvalidGraphError, match="feed each other in a circle"):
        needed(graph, "a")
    assert needed(graph, "a", ("b",)) == ["a"]


def test_loops_are_ordered_from_their_head() -> None:
    loop = [
        placeholder(),
        node("enter", "Enter", "x"),
        node("head", "Merge", "enter next"),
        node("step", "Relu", "head"),
        node("next", "NextIteration", "step"),
    ]
    assert needed(Graph(loop), "step") == ["x", "enter", "head", "step", "next"]


def refusal(*nodes: Node) -> UnsupportedError:
    with pytest.raises(UnsupportedError) as error:
        refuse(nodes, "g.pb")
    return error.value


def test_unsupported_nodes_are_counted() -> None:
    refuse([], "g.pb")
    one = refusal(node("a", "Zeta"))
    assert one.message == "node 'a' has the op 'Zeta', which cannot be run here"
    three = refusal(node("a", "Zeta"), node("b", "Alpha"), node("c", "Zeta"))
    assert three.message.endswith("(of the 3 nodes that cannot, the ops are Alpha, Zeta)")
    assert "freeze" not in three.hint
    assert "mobileprep freeze" in refusal(node("a", "Zeta"), node("v", "VariableV2")).hint


@pytest.mark.parametrize(
    ("names", "expected"), [("x", "placeholder 'x'"), ("x z", "placeholders 'x', 'z'")]
)
def test_missing_feeds_are_reported_first(names: str, expected: str) -> None:
    lacking = [node("a", "Zeta"), *map(placeholder, names.split())]
    with pytest.raises(UsageError) as error:
        refuse(lacking, "g.pb")
    assert error.value.message == f"nothing is fed to the {expected}"
