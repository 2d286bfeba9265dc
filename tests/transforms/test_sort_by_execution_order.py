"""sort_by_execution_order: inputs before consumers, in the original's order."""

import pytest

from mobileprep.errors import InvalidGraphError, TransformError
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, node, placeholder

BOTH = pytest.mark.parametrize("tf115", [True, False])


@BOTH
def test_golden(tf115):
    graph = Graph(
        [node("out", "Add", "a b"), node("b", "Relu", "x"), node("a", "Relu", "x"), placeholder()]
    )
    result = apply("sort_by_execution_order", graph, tf115=tf115)
    assert [n.name for n in result.graph] == ["x", "a", "b", "out"]
    assert result.matched == 4


def test_a_sorted_graph_is_the_same_object():
    graph = Graph([placeholder(), node("out", "Relu", "x")])
    assert apply("sort_by_execution_order", graph).graph is graph


def test_loops_are_sorted():
    graph = Graph(
        [
            node("next", "NextIteration", "merge"),
            node("merge", "Merge", "enter next", N=2),
            node("enter", "Enter", "c"),
            const("c", 1.0),
        ]
    )
    result = apply("sort_by_execution_order", graph)
    assert [n.name for n in result.graph] == ["c", "enter", "merge", "next"]


def test_a_circle_is_an_error_that_names_a_node_of_it():
    graph = Graph([placeholder(), node("a", "Relu", "b"), node("b", "Relu", "a")])
    with pytest.raises(TransformError, match="2 nodes are in a circle or after one, as 'a'"):
        apply("sort_by_execution_order", graph)


def test_a_missing_input_is_an_error():
    with pytest.raises(InvalidGraphError, match="takes 'gone', which does not exist"):
        apply("sort_by_execution_order", Graph([node("a", "Relu", "gone")]))


def test_cycle_of_equal_names_is_reported():
    graph = Graph([placeholder("a"), placeholder("b"), node("b", "Add", "a b")])
    with pytest.raises(TransformError, match="1 nodes are in a circle or after one, as 'b'"):
        apply("sort_by_execution_order", graph)
