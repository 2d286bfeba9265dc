"""Removing control inputs that have no effect."""

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.bypass import without_idle_controls
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import const, node, placeholder, shown


def _inputs(graph: Graph, name: str) -> list[str]:
    return [str(r) for r in graph[name].inputs]


def test_control_inputs_from_constants_are_removed():
    graph = Graph(
        [
            placeholder(),
            const("c", 1.0),
            node("read", "Identity", "c"),
            node("some", "NoOp", "^read", T=None),
            node("all", "NoOp", "^c ^some", T=None),
            node("out", "Add", "x c ^all"),
        ]
    )
    result = without_idle_controls(graph, {"x", "out"})
    assert shown(result) == (
        "x = Placeholder()\nc = Const() value=float32[]:1\nout = Add(x, c) T=float32"
    )


def test_fetched_no_op_is_not_removed():
    graph = Graph([const("c", 1.0), node("all", "NoOp", "^c", T=None)])
    result = without_idle_controls(graph, {"all"})
    assert sorted(result.by_name) == ["all"]
    assert not result["all"].inputs


@pytest.mark.parametrize("gate", ["Placeholder", "Relu", "Assert", "Enter"])
def test_control_inputs_that_lead_to_other_ops_are_not_removed(gate):
    graph = Graph(
        [
            placeholder(),
            node("gate", gate, "" if gate == "Placeholder" else "x"),
            const("c", 1.0, inputs="^gate"),
            node("wait", "NoOp", "^c", T=None),
            node("out", "Relu", "x ^wait"),
        ]
    )
    assert without_idle_controls(graph, {"x", "out"}) is graph


def test_constant_of_a_branch_keeps_its_control_input():
    graph = Graph(
        [
            placeholder("p", DType.BOOL),
            node("switch", "Switch", "p p", T=DType.BOOL),
            node("then", "Identity", "switch:1", T=DType.BOOL),
            const("free", 1.0),
            const("tied", 1.0, inputs="^then ^free"),
            node("out", "Identity", "free ^tied"),
        ]
    )
    result = without_idle_controls(graph, {"p", "out"})
    assert _inputs(result, "tied") == ["^then"]
    assert _inputs(result, "out") == ["free", "^tied"]


def test_cycle_of_control_inputs_is_not_removed():
    graph = Graph([node("a", "NoOp", "^b", T=None), node("b", "NoOp", "^a", T=None)])
    assert without_idle_controls(graph, ()) is graph


def test_graph_without_control_inputs_is_returned_as_is():
    graph = Graph([const("c", 1.0), node("out", "Identity", "c")])
    assert without_idle_controls(graph, ()) is graph
