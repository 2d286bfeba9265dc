"""Execution order, as in the original tool."""

from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import execution_order
from tests.transforms.graphs import node, placeholder


def _order(*nodes):
    return [n.name for n in execution_order(Graph(nodes))]


def test_inputs_come_first_and_the_last_ready_node_is_next():
    nodes = [node("sum", "Add", "a b"), placeholder("a"), placeholder("b"), node("r", "Relu", "a")]
    assert _order(*nodes) == ["b", "a", "r", "sum"]


def test_node_that_reads_an_input_twice():
    assert _order(node("sum", "Add", "a a"), placeholder("a")) == ["a", "sum"]


def test_loop_starts_with_its_merge():
    nodes = [
        node("next", "NextIteration", "relu"),
        node("merge", "Merge", "enter next ^x"),
        node("relu", "Relu", "merge"),
        node("enter", "Enter", "x"),
        placeholder(),
    ]
    assert _order(*nodes) == ["x", "enter", "merge", "relu", "next"]


def test_cycles_and_consumers_of_missing_nodes_are_excluded():
    nodes = [
        node("a", "Relu", "b"),
        node("b", "Relu", "a"),
        node("c", "Relu", "lost"),
        placeholder(),
    ]
    assert _order(*nodes) == ["x"]
