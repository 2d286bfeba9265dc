"""The order of execution as the original tool finds it."""

from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import execution_order
from tests.transforms.graphs import node, placeholder


def _order(*nodes):
    return [n.name for n in execution_order(Graph(nodes))]


def test_inputs_come_first_and_the_latest_ready_node_is_taken():
    nodes = [node("sum", "Add", "a b"), placeholder("a"), placeholder("b"), node("r", "Relu", "a")]
    assert _order(*nodes) == ["b", "a", "r", "sum"]


def test_an_input_taken_twice_is_waited_for_twice():
    assert _order(node("sum", "Add", "a a"), placeholder("a")) == ["a", "sum"]


def test_a_loop_starts_with_its_merge():
    nodes = [
        node("next", "NextIteration", "relu"),
        node("merge", "Merge", "enter next ^x"),
        node("relu", "Relu", "merge"),
        node("enter", "Enter", "x"),
        placeholder(),
    ]
    assert _order(*nodes) == ["x", "enter", "merge", "relu", "next"]


def test_nodes_of_a_cycle_and_consumers_of_lost_nodes_are_left_out():
    nodes = [
        node("a", "Relu", "b"),
        node("b", "Relu", "a"),
        node("c", "Relu", "lost"),
        placeholder(),
    ]
    assert _order(*nodes) == ["x"]
