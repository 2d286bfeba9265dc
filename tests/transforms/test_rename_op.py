"""rename_op: nodes of one op become nodes of another."""

from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, node, placeholder, shown

NAMES = {"old_op_name": "Relu", "new_op_name": "Relu6"}


def test_golden():
    graph = Graph([placeholder(), node("Relu", "Relu", "x"), node("out", "Neg", "Relu")])
    result = apply("rename_op", graph, **NAMES)
    assert result.matched == 1
    assert shown(result.graph) == (
        "x = Placeholder()\nRelu = Relu6(x) T=float32\nout = Neg(Relu) T=float32"
    )


def test_a_graph_without_the_op_is_the_same_object():
    graph = Graph([placeholder()])
    assert apply("rename_op", graph, **NAMES).graph is graph
