"""rename_attribute: another name for an attribute of the nodes of an op, or of all."""

from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, node, placeholder, shown

NAMES = {"old_attribute_name": "old", "new_attribute_name": "new"}


def _graph():
    return Graph([placeholder(), node("a", "Relu", "x", old=1), node("out", "Neg", "a", old=2)])


def test_golden():
    result = apply("rename_attribute", _graph(), op_name="Neg", **NAMES)
    assert result.matched == 1
    assert shown(result.graph) == (
        "x = Placeholder()\na = Relu(x) T=float32 old=1\nout = Neg(a) T=float32 new=2"
    )


def test_without_an_op_all_nodes_have_the_new_name():
    assert apply("rename_attribute", _graph(), **NAMES).matched == 2


def test_an_attribute_of_the_new_name_keeps_its_value():
    graph = Graph([node("out", "Relu", "", old=1, new=2)])
    result = apply("rename_attribute", graph, **NAMES)
    assert shown(result.graph) == "out = Relu() T=float32 new=2"


def test_a_node_without_it_stays_though_another_has_its_name():
    graph = Graph([node("out", "Relu", "", old=1), node("out", "Relu", "")])
    result = apply("rename_attribute", graph, **NAMES)
    assert shown(result.graph) == "out = Relu() T=float32 new=1\nout = Relu() T=float32"


def test_a_graph_without_it_is_the_same_object():
    graph = _graph()
    assert apply("rename_attribute", graph, op_name="Abs", **NAMES).graph is graph
