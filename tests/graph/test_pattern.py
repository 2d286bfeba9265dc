"""Patterns and their matches, as in GraphMatcher of the original tool."""

import pytest

from mobileprep.errors import UsageError
from mobileprep.graph.graph import Graph
from mobileprep.graph.pattern import GraphMatcher, op
from tests.transforms.graphs import const, node, placeholder


def _graph(*nodes):
    return Graph([placeholder(), *nodes])


def _heads(graph, pattern, check=None):
    return [m.node.name for m in GraphMatcher(graph).find(pattern, check).matches]


SCALED = _graph(
    const("w", [[1.0]]),
    node("layer", "MatMul", "x w"),
    const("f", [1.0]),
    node("out", "Mul", "layer f"),
)


@pytest.mark.parametrize(
    ("pattern", "heads"),
    [
        (op("Mul"), ["out"]),
        (op("Conv2D|MatMul"), ["layer"]),
        (op("Mul", op("Conv2D|MatMul", "*", "Const"), "Const"), ["out"]),
        (op("Mul", op("MatMul"), op("*")), ["out"]),
        (op("Mul", "Const", "MatMul"), []),
        (op("Mul", "MatMul"), []),
        (op("Mul", "MatMul", "Const", "Const"), []),
        (op("Mul", op("MatMul", "Const", "Const"), "Const"), []),
        (op("MatMu"), []),
        (op("Mul|"), ["out"]),
    ],
    ids=str,
)
def test_ops_and_inputs_must_match(pattern, heads):
    assert _heads(SCALED, pattern) == heads


def test_control_inputs_are_ignored():
    graph = _graph(node("wait", "NoOp"), node("out", "Relu", "x ^wait"))
    assert _heads(graph, op("Relu", "Placeholder")) == ["out"]


def test_any_output_of_a_node_matches():
    graph = _graph(node("split", "Split", "x"), node("out", "Relu", "split:1"))
    assert _heads(graph, op("Relu", "Split")) == ["out"]


def test_matches_do_not_share_nodes():
    """Nodes that match a star also belong to one match only."""
    graph = _graph(node("a", "Relu", "x"), node("b", "Relu", "x"))
    assert len(_heads(graph, op("Relu", "*"))) == 1
    assert len(_heads(graph, op("Relu"))) == 2


def test_borrowed_nodes_may_be_shared():
    graph = _graph(node("a", "Relu", "x"), node("b", "Relu", "x"))
    pattern = op("Relu", op("*", borrowed=True))
    matches = GraphMatcher(graph).find(pattern).matches
    assert [[n.name for n in m.nodes] for m in matches] == [["b"], ["a"]]


def test_first_match_in_execution_order_wins():
    graph = Graph([node("second", "Relu", "first"), node("first", "Relu", "x"), placeholder()])
    assert _heads(graph, op("Relu", "*")) == ["first"]


def test_star_matches_every_node():
    assert sorted(_heads(SCALED, op("*"))) == sorted(SCALED.by_name)


def test_node_may_match_two_inputs():
    graph = _graph(node("out", "Mul", "x x"))
    (match,) = GraphMatcher(graph).find(op("Mul", "*", "*")).matches
    assert [n.name for n in match.nodes] == ["out", "x"]


def test_nodes_are_listed_breadth_first():
    pattern = op("Mul", op("MatMul", "*", "Const"), "Const")
    (match,) = GraphMatcher(SCALED).find(pattern).matches
    assert [n.name for n in match.nodes] == ["out", "layer", "f", "x", "w"]


def test_nodes_are_found_by_label():
    pattern = op("Mul", op("MatMul", label="layer"), op("Const", label="factors"))
    (match,) = GraphMatcher(SCALED).find(pattern).matches
    assert match["factors"].name == "f"
    assert match.find("bias") is None
    with pytest.raises(UsageError, match="'factor'") as error:
        match["factor"]
    assert "'factors'" in error.value.hint


def test_rejected_match_does_not_claim_nodes():
    graph = _graph(node("a", "Relu", "x"), node("b", "Relu", "x"))
    result = GraphMatcher(graph).find(
        op("Relu", "*"), lambda m: "not this one" if m.node.name == "b" else ""
    )
    assert [m.node.name for m in result.matches] == ["a"]
    assert result.skipped == {"not this one": 1}


def test_nodes_used_outside_of_a_match():
    graph = _graph(*SCALED.nodes[1:], node("relu", "Relu", "layer"), node("end", "NoOp", "^w"))
    pattern = op("Mul", op("MatMul", "*", "Const"), "Const")
    (match,) = GraphMatcher(graph, protected={"f", "elsewhere"}).find(pattern).matches
    assert match.used_outside == {"layer", "w", "f"}


def test_loops_are_searched():
    loop = [
        node("enter", "Enter", "x"),
        node("merge", "Merge", "enter next"),
        node("relu", "Relu", "merge"),
        node("next", "NextIteration", "relu"),
    ]
    assert _heads(_graph(*loop), op("Relu", "Merge")) == ["relu"]


def test_nodes_of_a_cycle_are_matched_last():
    graph = _graph(node("a", "Relu", "b"), node("b", "Relu", "a"), node("c", "Relu", "x"))
    assert _heads(graph, op("Relu")) == ["c", "a", "b"]


def test_missing_input_does_not_match():
    assert _heads(_graph(node("a", "Relu", "lost")), op("Relu", "*")) == []


def test_patterns_are_formatted_as_in_the_original():
    assert str(op("Mul", op("MatMul", "*"), "Const")) == "{Mul, {{MatMul, {{*}}}, {Const}}}"
