"""Patterns and their matches, with the semantics of the original's GraphMatcher."""

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
def test_ops_and_inputs_must_fit(pattern, heads):
    assert _heads(SCALED, pattern) == heads


def test_control_inputs_are_not_counted():
    graph = _graph(node("wait", "NoOp"), node("out", "Relu", "x ^wait"))
    assert _heads(graph, op("Relu", "Placeholder")) == ["out"]


def test_an_output_number_does_not_hide_the_node():
    graph = _graph(node("split", "Split", "x"), node("out", "Relu", "split:1"))
    assert _heads(graph, op("Relu", "Split")) == ["out"]


def test_matches_share_no_node():
    """Even the nodes that a star stands for belong to one match only."""
    graph = _graph(node("a", "Relu", "x"), node("b", "Relu", "x"))
    assert len(_heads(graph, op("Relu", "*"))) == 1
    assert len(_heads(graph, op("Relu"))) == 2


def test_borrowed_nodes_serve_several_matches():
    graph = _graph(node("a", "Relu", "x"), node("b", "Relu", "x"))
    pattern = op("Relu", op("*", borrowed=True))
    found = GraphMatcher(graph).find(pattern).matches
    assert [[n.name for n in m.nodes] for m in found] == [["b"], ["a"]]


def test_the_first_in_execution_order_wins():
    graph = Graph([node("second", "Relu", "first"), node("first", "Relu", "x"), placeholder()])
    assert _heads(graph, op("Relu", "*")) == ["first"]


def test_a_star_alone_fits_every_node():
    assert sorted(_heads(SCALED, op("*"))) == sorted(SCALED.by_name)


def test_a_node_may_stand_for_two_inputs_of_one_match():
    graph = _graph(node("out", "Mul", "x x"))
    (match,) = GraphMatcher(graph).find(op("Mul", "*", "*")).matches
    assert [n.name for n in match.nodes] == ["out", "x"]


def test_nodes_are_listed_level_by_level():
    pattern = op("Mul", op("MatMul", "*", "Const"), "Const")
    (match,) = GraphMatcher(SCALED).find(pattern).matches
    assert [n.name for n in match.nodes] == ["out", "layer", "f", "x", "w"]


def test_labels_name_the_nodes():
    pattern = op("Mul", op("MatMul", label="layer"), op("Const", label="factors"))
    (match,) = GraphMatcher(SCALED).find(pattern).matches
    assert match["factors"].name == "f"
    assert match.find("bias") is None
    with pytest.raises(UsageError, match="'factor'") as error:
        match["factor"]
    assert "'factors'" in error.value.hint


def test_a_check_leaves_nodes_free_for_others():
    graph = _graph(node("a", "Relu", "x"), node("b", "Relu", "x"))
    found = GraphMatcher(graph).find(
        op("Relu", "*"), lambda m: "not this one" if m.node.name == "b" else ""
    )
    assert [m.node.name for m in found.matches] == ["a"]
    assert found.skipped == {"not this one": 1}


def test_nodes_used_outside_are_known():
    graph = _graph(*SCALED.nodes[1:], node("relu", "Relu", "layer"), node("end", "NoOp", "^w"))
    pattern = op("Mul", op("MatMul", "*", "Const"), "Const")
    (match,) = GraphMatcher(graph, protected={"f", "elsewhere"}).find(pattern).matches
    assert match.used_outside == {"layer", "w", "f"}


def test_loops_are_searched_too():
    loop = [
        node("enter", "Enter", "x"),
        node("merge", "Merge", "enter next"),
        node("relu", "Relu", "merge"),
        node("next", "NextIteration", "relu"),
    ]
    assert _heads(_graph(*loop), op("Relu", "Merge")) == ["relu"]


def test_nodes_of_a_cycle_are_looked_at_last():
    graph = _graph(node("a", "Relu", "b"), node("b", "Relu", "a"), node("c", "Relu", "x"))
    assert _heads(graph, op("Relu")) == ["c", "a", "b"]


def test_inputs_that_are_not_there_fit_nothing():
    assert _heads(_graph(node("a", "Relu", "lost")), op("Relu", "*")) == []


def test_a_pattern_is_shown_as_the_original_spells_it():
    assert str(op("Mul", op("MatMul", "*"), "Const")) == "{Mul, {{MatMul, {{*}}}, {Const}}}"
