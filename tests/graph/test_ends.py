"""Where a graph begins and ends."""

from __future__ import annotations

import pytest

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import ends, name_hint, nodes_of, placeholders
from mobileprep.graph.refs import Ref

GRAPH = Graph(
    [
        Node("image", "Placeholder"),
        Node("old", "PlaceholderV2"),
        Node("weights", "Const"),
        Node("unused_control_flow_input", "Placeholder"),
        Node("sum", "AddN", (Ref("image"), Ref("old"), Ref("weights"))),
        Node("done", "NoOp"),
        Node("probabilities", "Softmax", (Ref("sum"),)),
    ]
)


def test_a_graph_begins_at_placeholders_and_ends_where_nothing_reads() -> None:
    assert placeholders(GRAPH) == ["image", "old"]
    assert ends(GRAPH) == ["probabilities"]


def test_placeholders_that_nothing_reads_count_where_there_are_no_others() -> None:
    assert placeholders(Graph([Node("x", "Placeholder")])) == ["x"]


def test_what_leaves_a_lowered_loop_unread_is_no_output() -> None:
    left = [Node("rnn/while/exit/_7", "Exit"), Node("while/Exit_1", "Exit")]
    assert ends(Graph([*left, Node("y", "Identity")])) == ["while/Exit_1", "y"]
    assert ends(Graph(left[:1])) == ["rnn/while/exit/_7"]


def test_tensors_belong_to_nodes() -> None:
    assert nodes_of(["x", "x:1", "y:0", "^z"]) == {"x", "y", "z"}


@pytest.mark.parametrize(
    ("name", "what", "hint"),
    [
        ("probabilites", "output", "did you mean 'probabilities'?"),
        ("qqqq", "input", "its placeholders are image, old"),
        ("qqqq", "output", "nothing reads probabilities"),
    ],
)
def test_a_name_that_is_not_there_gets_a_hint(name: str, what: str, hint: str) -> None:
    assert name_hint(GRAPH, name, what) == hint


def test_an_empty_graph_has_no_likely_names() -> None:
    assert name_hint(Graph(), "x", "input") == "look at the names in the graph"
