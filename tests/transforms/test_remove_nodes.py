"""remove_nodes: nodes out of the way, but for those that branches and loops hang on."""

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, node, normal, placeholder, run, shown

BOTH = pytest.mark.parametrize("tf115", [True, False])
IDENTITY = {"op": ("Identity",)}


def _chain():
    return Graph(
        [
            placeholder(),
            node("a", "Identity", "x"),
            node("b", "Identity", "a"),
            node("c", "CheckNumerics", "b", message=""),
            node("out", "Relu", "c"),
        ]
    )


def test_golden():
    result = apply("remove_nodes", _chain(), op=("Identity", "CheckNumerics"))
    assert result.matched == 3
    assert shown(result.graph) == "x = Placeholder()\nout = Relu(x) T=float32"


def test_golden_of_the_tf115_order():
    """A source comes to stand where the last node was that it replaced."""
    graph = Graph(
        [placeholder(), const("c", 1.0), node("a", "Identity", "x"), node("out", "Add", "a c")]
    )
    result = apply("remove_nodes", graph, tf115=True, **IDENTITY)
    assert [n.name for n in result.graph] == ["c", "x", "out"]


@BOTH
def test_it_computes_the_same(tf115):
    x = normal(2, 3)
    after = apply("remove_nodes", _chain(), op=("Identity", "CheckNumerics"), tf115=tf115)
    np.testing.assert_array_equal(run(after.graph, x), run(_chain(), x))


@BOTH
def test_a_graph_without_the_op_is_the_same_object(tf115):
    graph = Graph([placeholder(), node("out", "Relu", "x")])
    assert apply("remove_nodes", graph, tf115=tf115, **IDENTITY).graph is graph


@BOTH
def test_inputs_and_outputs_stay(tf115):
    graph = Graph([placeholder(), node("in", "Identity", "x"), node("out", "Identity", "in:0")])
    result = apply("remove_nodes", graph, inputs=("in:0",), tf115=tf115, **IDENTITY)
    assert {n.name for n in result.graph} == {"x", "in", "out"}
    assert result.skipped == {"an input or output of the graph": 2 - tf115}


@BOTH
def test_references_to_later_outputs_stay(tf115):
    graph = Graph(
        [
            placeholder(),
            const("axis", 0, "int32"),
            node("halves", "Split", "axis x", num_split=2),
            node("a", "Identity", "halves:1"),
            node("out", "Relu", "a"),
        ]
    )
    after = apply("remove_nodes", graph, tf115=tf115, **IDENTITY).graph
    assert str(after["out"].inputs[0]) == "halves:1"


@BOTH
def test_a_node_stays_whose_later_outputs_are_used(tf115):
    """The original leaves their consumers without an input."""
    graph = Graph(
        [
            placeholder(),
            const("k", 1, "int32"),
            node("top", "TopKV2", "x k", Tindices=None),
            node("out", "Relu", "top:1"),
        ]
    )
    result = apply("remove_nodes", graph, op=("TopKV2",), max_inputs=2, tf115=tf115)
    assert result.graph is graph
    assert result.skipped == {"an output that nothing could replace is used": 1}


@BOTH
def test_control_dependencies_lead_to_the_source(tf115):
    graph = Graph(
        [placeholder(), node("a", "Identity", "x"), const("c", 1.0, inputs="^a"), _out("x c")]
    )
    after = apply("remove_nodes", graph, tf115=tf115, **IDENTITY).graph
    assert [str(r) for r in after["c"].inputs] == ["^x"]


def _out(inputs):
    return node("out", "Add", inputs)


def test_a_node_that_waits_for_others_stays_in_a_recipe_alone():
    """The original forgets what it waited for."""
    relu = node("c", "Relu", "x")
    graph = Graph([placeholder(), relu, node("a", "Identity", "x ^c"), _out("a a")])
    kept = apply("remove_nodes", graph, **IDENTITY)
    assert kept.graph is graph
    assert kept.skipped == {"it waits for other nodes": 1}
    assert "a" not in apply("remove_nodes", graph, tf115=True, **IDENTITY).graph


@BOTH
def test_node_that_selects_the_branch_stays(tf115):
    """The original hangs the nodes of both branches on the Switch, which always runs."""
    graph = Graph(
        [
            placeholder("p", DType.BOOL),
            node("switch", "Switch", "p p", T=DType.BOOL),
            node("then", "Identity", "switch:1", T=DType.BOOL),
            node("else", "Identity", "switch", T=DType.BOOL),
            const("one", 1.0, inputs="^then"),
            const("two", 2.0, inputs="^else"),
            node("passed", "Identity", "two"),
            node("out", "Merge", "passed one", N=2),
        ]
    )
    result = apply("remove_nodes", graph, inputs=("p",), tf115=tf115, **IDENTITY)
    assert {"then", "else"} <= {n.name for n in result.graph}
    assert "passed" not in result.graph
    assert result.skipped == {"it determines which branch runs": 2}


@BOTH
def test_a_node_that_only_a_branch_lets_run_stays(tf115):
    graph = Graph(
        [
            placeholder(),
            placeholder("p", DType.BOOL),
            node("switch", "Switch", "p p", T=DType.BOOL),
            node("taken", "Identity", "x ^switch"),
            node("out", "Relu", "taken"),
        ]
    )
    result = apply("remove_nodes", graph, inputs=("x", "p"), tf115=tf115, **IDENTITY)
    assert result.graph is graph
    assert result.skipped == {"its control inputs decide whether it runs": 1}


@BOTH
def test_max_inputs_takes_nodes_of_several_inputs_for_their_first(tf115):
    nodes = [placeholder(), const("c", 1.0), node("a", "Foo", "x c"), node("out", "Neg", "a")]
    graph = Graph(nodes)
    near = apply("remove_nodes", graph, op=("Foo",), tf115=tf115)
    assert near.graph is graph
    after = apply("remove_nodes", graph, op=("Foo",), max_inputs=2, tf115=tf115).graph
    assert str(after["out"].inputs[0]) == "x"


@BOTH
def test_max_inputs_beyond_those_of_any_node_costs_no_more(tf115):
    after = apply("remove_nodes", _chain(), max_inputs=2**31 - 1, tf115=tf115, **IDENTITY).graph
    assert str(after["c"].inputs[0]) == "x"


@BOTH
def test_a_second_input_that_others_use_stays(tf115):
    """The original removes it, and refuses the graph that it then has."""
    graph = Graph([placeholder(), const("c", 1.0), node("a", "Foo", "x c"), _out("a c")])
    after = apply("remove_nodes", graph, op=("Foo",), max_inputs=2, tf115=tf115).graph
    assert [str(r) for r in after["out"].inputs] == ["x", "c"]


def test_a_recipe_takes_all_in_one_go_and_the_original_stops_at_an_output():
    graph = Graph([placeholder(), node("a", "Identity", "x"), node("out", "Identity", "x"), _sum()])
    assert "a" not in apply("remove_nodes", graph, outputs=("out", "sum"), **IDENTITY).graph
    tf115 = apply("remove_nodes", graph, outputs=("out", "sum"), tf115=True, **IDENTITY)
    assert "a" in tf115.graph


def _sum():
    return node("sum", "Relu", "a")


@BOTH
def test_colocation_with_removed_nodes_is_forgotten(tf115):
    where = AttrValue("list(string)", (b"loc:@a",))
    by_a = node("out", "Relu", "a", _class=where)
    graph = Graph([placeholder(), node("a", "Identity", "x"), by_a])
    after = apply("remove_nodes", graph, tf115=tf115, **IDENTITY).graph
    assert "_class" not in after["out"].attrs
