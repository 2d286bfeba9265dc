"""Control inputs from constants carry nothing, but in branches and loops."""

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.bypass import without_idle_controls
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import const, node, placeholder, shown


def _inputs(graph: Graph, name: str) -> list[str]:
    return [str(r) for r in graph[name].inputs]


def test_edges_from_constants_and_what_only_waits_for_them_go():
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
    done = without_idle_controls(graph, {"x", "out"})
    assert shown(done) == (
        "x = Placeholder()\nc = Const() value=float32[]:1\nout = Add(x, c) T=float32"
    )


def test_a_fetched_no_op_stays():
    graph = Graph([const("c", 1.0), node("all", "NoOp", "^c", T=None)])
    done = without_idle_controls(graph, {"all"})
    assert sorted(done.by_name) == ["all"]
    assert not done["all"].inputs


@pytest.mark.parametrize("gate", ["Placeholder", "Relu", "Assert", "Enter"])
def test_edges_from_what_runs_stay(gate):
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


def test_a_constant_of_a_branch_still_tells_of_it():
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
    done = without_idle_controls(graph, {"p", "out"})
    assert _inputs(done, "tied") == ["^then"]
    assert _inputs(done, "out") == ["free", "^tied"]


def test_nodes_that_wait_for_each_other_are_not_idle():
    graph = Graph([node("a", "NoOp", "^b", T=None), node("b", "NoOp", "^a", T=None)])
    assert without_idle_controls(graph, ()) is graph


def test_a_graph_without_control_inputs_comes_back():
    graph = Graph([const("c", 1.0), node("out", "Identity", "c")])
    assert without_idle_controls(graph, ()) is graph
