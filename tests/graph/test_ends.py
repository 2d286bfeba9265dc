"""Detection of the inputs and outputs of a graph."""

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


def test_inputs_are_placeholders_and_outputs_are_unread_nodes() -> None:
    assert placeholders(GRAPH) == ["image", "old"]
    assert ends(GRAPH) == ["probabilities"]


def test_unread_placeholder_counts_if_it_is_the_only_one() -> None:
    assert placeholders(Graph([Node("x", "Placeholder")])) == ["x"]


def test_unread_exit_of_a_lowered_loop_is_not_an_output() -> None:
    exits = [Node("rnn/while/exit/_7", "Exit"), Node("while/Exit_1", "Exit")]
    assert ends(Graph([*exits, Node("y", "Identity")])) == ["while/Exit_1", "y"]
    assert ends(Graph(exits[:1])) == ["rnn/while/exit/_7"]


def test_nodes_of_tensor_names() -> None:
    assert nodes_of(["x", "x:1", "y:0", "^z"]) == {"x", "y", "z"}


@pytest.mark.parametrize(
    ("name", "what", "hint"),
    [
        ("probabilites", "output", "did you mean 'probabilities'?"),
        ("qqqq", "input", "its placeholders are image, old"),
        ("qqqq", "output", "nothing reads probabilities"),
    ],
)
def test_hint_for_an_unknown_name(name: str, what: str, hint: str) -> None:
    assert name_hint(GRAPH, name, what) == hint


def test_hint_for_an_empty_graph() -> None:
    assert name_hint(Graph(), "x", "input") == "look at the names in the graph"
