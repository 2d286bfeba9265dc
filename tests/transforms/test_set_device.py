"""set_device: the device that nodes ask for."""

from msgspec.structs import replace

from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, node, placeholder


def _graph():
    return Graph([placeholder(), replace(node("out", "Relu", "x"), device="/gpu:0")])


def _devices(result):
    return [n.device for n in result.graph]


def test_golden():
    result = apply("set_device", _graph(), device="/cpu:0")
    assert _devices(result) == ["/cpu:0", "/cpu:0"]
    assert result.matched == 2


def test_nodes_that_ask_for_one_keep_it_if_only_others_are_to_change():
    result = apply("set_device", _graph(), device="/cpu:0", if_default=True)
    assert _devices(result) == ["/cpu:0", "/gpu:0"]


def test_without_a_device_none_is_asked_for():
    assert _devices(apply("set_device", _graph())) == ["", ""]


def test_a_graph_that_asks_for_it_is_the_same_object():
    graph = apply("set_device", _graph(), device="/cpu:0").graph
    assert apply("set_device", graph, device="/cpu:0").graph is graph
