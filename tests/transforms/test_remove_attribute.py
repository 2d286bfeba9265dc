"""remove_attribute: an attribute off the nodes of an op, or of all."""

import pytest

from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, node, placeholder, shown


def _graph():
    return Graph([placeholder(), node("a", "Relu", "x", note=1), node("out", "Neg", "a", note=2)])


def test_golden():
    result = apply("remove_attribute", _graph(), attribute_name="note", op_name="Relu")
    assert result.matched == 1
    assert shown(result.graph) == (
        "x = Placeholder()\na = Relu(x) T=float32\nout = Neg(a) T=float32 note=2"
    )


def test_without_an_op_all_nodes_lose_it():
    result = apply("remove_attribute", _graph(), attribute_name="note")
    assert result.matched == 2
    assert not any("note" in n.attrs for n in result.graph)


@pytest.mark.parametrize("options", [{"attribute_name": "other"}, {"op_name": "Abs"}])
def test_a_graph_without_it_is_the_same_object(options):
    graph = _graph()
    options = {"attribute_name": "note", **options}
    assert apply("remove_attribute", graph, **options).graph is graph
