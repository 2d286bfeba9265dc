"""Guessed outputs exclude loop internals, counters, and checks."""

from __future__ import annotations

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.freezing.guess import guess
from tests.freezing.graphs import FLOAT, const, node, placeholder, source

INT = DType.INT32
BOOL = DType.BOOL


def outputs(*nodes):
    return [t.name for t in guess(source(list(nodes))).outputs]


def loop(name, start, *body, next_value, initial_count="0"):
    """Return a loop with a counter ``NAME/turn`` and ``NAME/value``, which ends the loop.

    Args:
        name: name of the loop.
        start: initial value.
        body: additional nodes.
        next_value: node of the next value.
        initial_count: initial value of the counter.
    """

    def variable(key, dtype, begins, following):
        return [
            node(f"{name}/{key}/Enter", "Enter", begins, T=dtype, frame_name=name),
            node(f"{name}/{key}/Next", "NextIteration", following, T=dtype),
            node(
                f"{name}/{key}/Merge", "Merge", f"{name}/{key}/Enter", f"{name}/{key}/Next",
                T=dtype, N=2,
            ),
            node(f"{name}/{key}/Switch", "Switch", f"{name}/{key}/Merge", f"{name}/go", T=dtype),
            node(f"{name}/{key}", "Identity", f"{name}/{key}/Switch:1", T=dtype),
            node(f"{name}/{key}/Exit", "Exit", f"{name}/{key}/Switch", T=dtype),
        ]  # fmt: skip

    return [
        *variable("turn", INT, initial_count, f"{name}/add"),
        *variable("value", FLOAT, start, next_value),
        const(f"{name}/limit", np.float32(4), f"^{name}/turn/Merge"),
        const(f"{name}/axis", np.int32(0), f"^{name}/turn/Merge"),
        node(f"{name}/less", "Less", f"{name}/value/Merge", f"{name}/limit", T=FLOAT),
        node(f"{name}/all", "All", f"{name}/less", f"{name}/axis", Tidx=INT, keep_dims=False),
        node(f"{name}/go", "LoopCond", f"{name}/all"),
        const(f"{name}/one", np.int32(1), f"^{name}/turn"),
        node(f"{name}/add", "AddV2", f"{name}/turn", f"{name}/one", T=INT),
        *body,
    ]


def first_nodes():
    return [placeholder("x", 4), const("0", np.int32(0))]


def halved(name):
    return node(f"{name}/half", "Neg", f"{name}/value", T=FLOAT)


def test_unused_node_of_a_loop_is_not_an_output():
    body = [halved("a"), node("a/unused", "Abs", "a/value", T=FLOAT)]
    nodes = [*first_nodes(), *loop("a", "x", *body, next_value="a/half")]
    assert outputs(*nodes) == ["a/value/Exit"]
    named = node("out", "Identity", "a/value/Exit", T=FLOAT)
    assert outputs(*nodes, named) == ["out"]


def test_exit_of_a_nested_loop_is_not_an_output():
    within = loop("b", "a/value", halved("b"), next_value="b/half", initial_count="a/turn")
    nodes = [*first_nodes(), *loop("a", "x", *within, next_value="b/value/Exit")]
    assert outputs(*nodes, node("out", "Identity", "a/value/Exit", T=FLOAT)) == ["out"]


def test_counter_is_the_output_if_there_is_no_other():
    body = [halved("a"), node("a/wait", "Max", "a/value", "a/0", T=FLOAT, Tidx=INT)]
    nodes = [
        *first_nodes(),
        *loop("a", "x", *body, next_value="a/half"),
        const("a/0", np.int32(0), "^a/turn"),
    ]
    assert outputs(*(n for n in nodes if n.name != "a/value/Exit")) == ["a/turn/Exit"]


def test_input_dependent_loop_count_is_an_output():
    count = node("a/count", "Enter", "size", T=INT, frame_name="a")
    nodes = [
        *first_nodes(),
        node("size", "ArgMax", "x", "0", T=FLOAT, Tidx=INT, output_type=INT),
        *loop("a", "x", halved("a"), next_value="a/half", initial_count="size"),
        count,
        node("out", "Identity", "a/value/Exit", T=FLOAT),
    ]
    assert outputs(*nodes) == ["out", "a/turn/Exit"]


def conditional(*, around=()):
    """Return ``Neg`` or ``Abs`` of ``x``, with an unused node in the first branch."""
    return [
        placeholder("x", 4),
        placeholder("p", dtype=BOOL),
        node("cond/pred_id", "Identity", "p", T=BOOL),
        node("cond/in", "Switch", "x", "cond/pred_id", T=FLOAT),
        node("cond/neg", "Neg", "cond/in:1", T=FLOAT),
        node("cond/unused", "Tanh", "cond/in:1", T=FLOAT),
        node("cond/abs", "Abs", "cond/in", T=FLOAT),
        node("cond/Merge", "Merge", "cond/abs", "cond/neg", T=FLOAT, N=2),
        *around,
    ]


def test_unused_node_of_a_branch_is_not_an_output():
    assert outputs(*conditional()) == ["cond/Merge"]
    assert outputs(*conditional(around=[node("y", "Relu", "cond/Merge", T=FLOAT)])) == ["y"]


def test_branch_in_a_loop_and_loop_in_a_branch():
    body = [
        node("a/less_too", "Less", "a/turn", "a/one", T=INT),
        node("a/in", "Switch", "a/value", "a/less_too", T=FLOAT),
        node("a/neg", "Neg", "a/in:1", T=FLOAT),
        node("a/both", "Merge", "a/in", "a/neg", T=FLOAT, N=2),
        node("a/unused", "Abs", "a/both", T=FLOAT),
    ]
    assert outputs(*first_nodes(), *loop("a", "x", *body, next_value="a/both")) == ["a/value/Exit"]
    chosen = [
        node("in", "Switch", "x", "p", T=FLOAT),
        node("zero", "Switch", "0", "p", T=INT),
        placeholder("p", dtype=BOOL),
        *loop("a", "in", halved("a"), next_value="a/half", initial_count="zero"),
        node("y", "Merge", "a/value/Exit", "in:1", T=FLOAT, N=2),
    ]
    assert outputs(*first_nodes(), *chosen) == ["y"]


def checked():
    """Return a model with checks and image summaries."""
    return [
        placeholder("x", 4),
        const("tag", np.array(b"t", dtype=object)),
        const("shape", np.array([1, 2, 2, 1], np.int32)),
        node("finite/CheckNumerics", "CheckNumerics", "x", T=FLOAT, message="no number"),
        node("finite/control_dependency", "Identity", "x", "^finite/CheckNumerics", T=FLOAT),
        node("picture", "Reshape", "x", "shape", T=FLOAT, Tshape=INT),
        node("shown", "ImageSummary", "tag", "picture", T=FLOAT),
        node("less", "Less", "x", "x", T=FLOAT),
        node("a/AssertGuard/Switch", "Switch", "less", "less", T=BOOL),
        node("a/AssertGuard/no", "Identity", "a/AssertGuard/Switch", T=BOOL),
        node("a/AssertGuard/yes", "Identity", "a/AssertGuard/Switch:1", T=BOOL),
        node("a/AssertGuard/Merge", "Merge", "a/AssertGuard/no", "a/AssertGuard/yes", T=BOOL, N=2),
    ]


def test_checks_and_summaries_are_not_outputs():
    assert outputs(*checked(), node("y", "Relu", "x", T=FLOAT)) == ["y"]


def test_checks_and_summaries_are_the_only_outputs():
    assert outputs(*checked()) != []


def test_checked_result_is_an_output():
    nodes = [
        placeholder("x", 4),
        node("y", "Relu", "x", T=FLOAT),
        node("z", "Abs", "x", T=FLOAT),
        node("finite/CheckNumerics", "CheckNumerics", "y", T=FLOAT, message="no number"),
        node("finite/control_dependency", "Identity", "y", "^finite/CheckNumerics", T=FLOAT),
        node("sure", "CheckNumerics", "x", T=FLOAT, message="no number"),
    ]
    assert outputs(*nodes) == ["finite/control_dependency", "z", "sure"]
