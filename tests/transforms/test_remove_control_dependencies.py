"""remove_control_dependencies: nothing waits, unless a branch or a loop is at stake."""

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, node, placeholder, shown

BOTH = pytest.mark.parametrize("tf115", [True, False])


@BOTH
def test_golden(tf115):
    graph = Graph([placeholder(), const("c", 1.0, inputs="^x"), node("out", "Add", "x c ^c ^x")])
    result = apply("remove_control_dependencies", graph, tf115=tf115)
    assert result.matched == 2
    assert shown(result.graph) == (
        "x = Placeholder()\nc = Const() value=float32[]:1\nout = Add(x, c) T=float32"
    )


def test_a_graph_without_control_inputs_is_the_same_object():
    graph = Graph([placeholder(), node("out", "Relu", "x")])
    assert apply("remove_control_dependencies", graph).graph is graph


@BOTH
def test_a_constant_of_a_branch_stays_tied_to_it(tf115):
    """The original makes it run whichever branch is taken, and Merge takes what comes first."""
    graph = Graph(
        [
            placeholder(),
            placeholder("p", DType.BOOL),
            node("switch", "Switch", "p p", T=DType.BOOL),
            node("then", "Identity", "switch:1", T=DType.BOOL),
            const("one", 1.0, inputs="^then ^x"),
            node("two", "Add", "one one ^then"),
        ]
    )
    result = apply("remove_control_dependencies", graph, tf115=tf115)
    assert [str(r) for r in result.graph["one"].inputs] == ["^then"]
    assert [str(r) for r in result.graph["two"].inputs] == ["one", "one"]
    assert result.skipped == {"its only tie to a branch or a loop": 1}


@BOTH
def test_a_constant_of_a_loop_stays_in_its_frame(tf115):
    graph = Graph(
        [
            const("start", 0.0),
            node("enter", "Enter", "start", frame_name="loop"),
            node("merge", "Merge", "enter next", N=2),
            const("step", 1.0, inputs="^merge"),
            node("add", "Add", "merge step"),
            node("next", "NextIteration", "add"),
        ]
    )
    result = apply("remove_control_dependencies", graph, tf115=tf115)
    assert result.graph is graph
