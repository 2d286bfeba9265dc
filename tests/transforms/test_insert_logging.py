"""insert_logging: Print nodes behind the chosen ones."""

import numpy as np
import pytest

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.verify import check_graph
from mobileprep.runtime.interpreter import Interpreter
from tests.transforms.graphs import apply, const, node, placeholder, shown

BOTH = pytest.mark.parametrize("tf115", [True, False])


def _graph():
    return Graph(
        [
            placeholder(),
            const("axis", 0, "int32"),
            node("scope/halves", "Split", "axis x", num_split=2),
            node("a", "Relu", "scope/halves"),
            node("out", "Add", "a scope/halves:1 ^a"),
        ]
    )


def _branches():
    return Graph(
        [
            placeholder(),
            placeholder("on", DType.BOOL),
            node("way", "Switch", "x on"),
            node("less", "Neg", "way"),
            node("more", "Exp", "way:1"),
            node("out", "Merge", "less more", N=2),
        ]
    )


def _printers(result):
    return [n.name for n in result.graph if n.op == "Print"]


@BOTH
def test_golden(tf115):
    options = {"message": "see", "show_op": True, "show_name": True, "first_n": 3, "summarize": 7}
    result = apply("insert_logging", _graph(), op=("Split", "Relu"), tf115=tf115, **options)
    assert result.matched == 2
    assert shown(result.graph) == (
        "x = Placeholder()\n"
        "axis = Const() value=int32[]:0\n"
        "scope/halves = Split(axis, x) T=float32 num_split=2\n"
        "scope/halves__print__ = Print(scope/halves:0, scope/halves:0, scope/halves:1) T=float32 "
        "U=1,1 first_n=3 message=;Split;;scope/halves__print__;see summarize=7\n"
        "a = Relu(scope/halves__print__:0) T=float32\n"
        "a__print__ = Print(a:0, a:0) T=float32 U=1 first_n=3 message=;Relu;;a__print__;see "
        "summarize=7\n"
        "out = Add(a__print__:0, scope/halves:1, ^a) T=float32"
    )
    check_graph(result.graph, "")


def test_by_default_everything_that_is_used_is_printed_for_ever():
    result = apply("insert_logging", _graph())
    assert _printers(result) == [f"{n}__print__" for n in ("x", "axis", "scope/halves", "a")]
    assert result.graph["a__print__"].attr_int("first_n") == -1
    assert result.graph["a__print__"].attr_int("summarize") == 1024


def test_ops_and_prefixes_must_both_fit():
    assert _printers(apply("insert_logging", _graph(), prefix=("sco", "ax"))) == [
        "axis__print__",
        "scope/halves__print__",
    ]
    both = {"op": ("Split", "Relu"), "prefix": ("scope",)}
    assert _printers(apply("insert_logging", _graph(), **both)) == ["scope/halves__print__"]


def test_a_graph_without_the_op_is_the_same_object():
    graph = _graph()
    assert apply("insert_logging", graph, op=("Conv2D",)).graph is graph


@BOTH
def test_the_types_are_those_of_the_outputs_that_are_used(tf115):
    """The original lists all outputs' types beside the used outputs."""
    graph = Graph(
        [
            placeholder(),
            const("k", 1, "int32"),
            node("top", "TopKV2", "x k"),
            node("out", "Neg", "top:1", T=DType.INT32),
        ]
    )
    after = apply("insert_logging", graph, op=("TopKV2",), tf115=tf115).graph
    printer = after["top__print__"]
    assert [str(r) for r in printer.inputs] == ["top:0", "top:1"]
    assert printer.attr_dtypes("U") == (DType.INT32,)


@BOTH
@pytest.mark.parametrize(
    ("unfit", "consumer", "reason"),
    [
        (node("a", "NoOp", "", T=None), "Neg", "it has no output"),
        (
            node("a", "VariableV2", "", T=None, dtype=DType.FLOAT),
            "Assign",
            "it is a variable, which Print would turn into its value",
        ),
        (node("a", "NextIteration", "x"), "Merge", "loops are known by it"),
    ],
)
def test_nodes_without_allowed_consumers_are_skipped(unfit, consumer, reason, tf115):
    """The original makes graphs that cannot be loaded."""
    inputs = "x ^a" if unfit.op == "NoOp" else "a x"
    graph = Graph([placeholder(), unfit, node("out", consumer, inputs)])
    result = apply("insert_logging", graph, op=(unfit.op,), tf115=tf115)
    assert result.graph is graph
    assert result.skipped == {reason: 1}


@BOTH
def test_a_node_of_which_one_output_has_a_value_stays_as_it_is(tf115):
    """The original prints both outputs of a Switch, so that nothing behind it ever runs."""
    graph = _branches()
    result = apply("insert_logging", graph, op=("Switch",), tf115=tf115)
    assert result.graph is graph
    assert result.skipped == {"only one of its outputs has a value": 1}
    logged = apply("insert_logging", graph, tf115=tf115).graph
    assert "less__print__" in logged
    for on, wanted in ((False, -3), (True, np.exp(np.float32(3)))):
        fed = {"x": np.float32(3), "on": np.bool_(on)}
        assert Interpreter(logged).run(["out"], fed)[0] == wanted


@BOTH
@pytest.mark.parametrize("index", [0, 1])
def test_the_only_branch_that_is_used_is_printed_where_it_is_the_first(index, tf115):
    switch = list(_branches())[:3]
    graph = Graph([*switch, node("out", "Neg", f"way:{index}")])
    result = apply("insert_logging", graph, op=("Switch",), tf115=tf115)
    assert result.matched == (index == 0)


@BOTH
def test_new_names_are_free(tf115):
    graph = Graph([placeholder(), placeholder("x__print__"), node("out", "Add", "x x__print__")])
    after = apply("insert_logging", graph, tf115=tf115).graph
    check_graph(after, "")
    assert "x__print___1" in after


def test_unknown_ops_are_an_error():
    graph = Graph([node("a", "Mine", ""), node("out", "Relu", "a")])
    with pytest.raises(TransformError, match="unknown outputs of the op Mine"):
        apply("insert_logging", graph)


def test_an_output_that_is_not_there_is_an_error():
    graph = Graph([placeholder(), node("a", "Relu", "x"), node("out", "Relu", "a:3")])
    with pytest.raises(TransformError, match="output 3 of node 'a'"):
        apply("insert_logging", graph, op=("Relu",))
