"""remove_device: no node asks for a device."""

from msgspec.structs import replace

from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, node, placeholder, shown


def test_golden():
    placed = replace(node("out", "Relu", "x"), device="/job:worker/gpu:0")
    graph = Graph([placeholder(), placed])
    result = apply("remove_device", graph)
    assert result.matched == 1
    assert not any(n.device for n in result.graph)
    assert shown(result.graph) == shown(graph)


def test_a_graph_without_devices_is_the_same_object():
    graph = Graph([placeholder()])
    assert apply("remove_device", graph).graph is graph
