"""Ends that are no results: inside of loops and branches, counters, and what only checks."""

from __future__ import annotations

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.freezing.guess import guess
from tests.freezing.graphs import FLOAT, const, node, placeholder, source

INT = DType.INT32
BOOL = DType.BOOL


def outputs(*nodes):
    return [t.name for t in guess(source(list(nodes))).outputs]


def loop(name, start, *body, gives, counted="0"):
    """A loop of two variables, ``NAME/turn``, a counter, and ``NAME/value``.

    The second one tells when the loop ends.

    Args:
        name: its name.
        start: the tensor that the second one begins with.
        body: further nodes.
        gives: the node that makes the next value.
        counted: the tensor that the counter begins with.
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
        *variable("turn", INT, counted, f"{name}/add"),
        *variable("value", FLOAT, start, gives),
        const(f"{name}/limit", np.float32(4), f"^{name}/turn/Merge"),
        const(f"{name}/axis", np.int32(0), f"^{name}/turn/Merge"),
        node(f"{name}/less", "Less", f"{name}/value/Merge", f"{name}/limit", T=FLOAT),
        node(f"{name}/all", "All", f"{name}/less", f"{name}/axis", Tidx=INT, keep_dims=False),
        node(f"{name}/go", "LoopCond", f"{name}/all"),
        const(f"{name}/one", np.int32(1), f"^{name}/turn"),
        node(f"{name}/add", "AddV2", f"{name}/turn", f"{name}/one", T=INT),
        *body,
    ]


def begun():
    return [placeholder("x", 4), const("0", np.int32(0))]


def halved(name):
    return node(f"{name}/half", "Neg", f"{name}/value", T=FLOAT)


def test_what_a_loop_leaves_unused_is_no_output():
    body = [halved("a"), node("a/unused", "Abs", "a/value", T=FLOAT)]
    nodes = [*begun(), *loop("a", "x", *body, gives="a/half")]
    assert outputs(*nodes) == ["a/value/Exit"]
    named = node("out", "Identity", "a/value/Exit", T=FLOAT)
    assert outputs(*nodes, named) == ["out"]


def test_what_leaves_a_loop_for_another_one_is_no_output():
    within = loop("b", "a/value", halved("b"), gives="b/half", counted="a/turn")
    nodes = [*begun(), *loop("a", "x", *within, gives="b/value/Exit")]
    assert outputs(*nodes, node("out", "Identity", "a/value/Exit", T=FLOAT)) == ["out"]


def test_a_counter_alone_is_the_output():
    body = [halved("a"), node("a/wait", "Max", "a/value", "a/0", T=FLOAT, Tidx=INT)]
    nodes = [*begun(), *loop("a", "x", *body, gives="a/half"), const("a/0", np.int32(0), "^a/turn")]
    kept = [n for n in nodes if n.name != "a/value/Exit"]
    assert outputs(*kept) == ["a/turn/Exit"]


def test_rounds_that_depend_on_the_input_are_a_result():
    count = node("a/count", "Enter", "size", T=INT, frame_name="a")
    nodes = [
        *begun(),
        node("size", "ArgMax", "x", "0", T=FLOAT, Tidx=INT, output_type=INT),
        *loop("a", "x", halved("a"), gives="a/half", counted="size"),
        count,
        node("out", "Identity", "a/value/Exit", T=FLOAT),
    ]
    assert outputs(*nodes) == ["out", "a/turn/Exit"]


def conditional(*, around=()):
    """``Neg`` or ``Abs`` of ``x``, and in the first branch what nothing takes."""
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


def test_what_a_branch_leaves_unused_is_no_output():
    assert outputs(*conditional()) == ["cond/Merge"]
    assert outputs(*conditional(around=[node("y", "Relu", "cond/Merge", T=FLOAT)])) == ["y"]


def test_a_branch_within_a_loop_and_a_loop_within_a_branch():
    body = [
        node("a/less_too", "Less", "a/turn", "a/one", T=INT),
        node("a/in", "Switch", "a/value", "a/less_too", T=FLOAT),
        node("a/neg", "Neg", "a/in:1", T=FLOAT),
        node("a/both", "Merge", "a/in", "a/neg", T=FLOAT, N=2),
        node("a/unused", "Abs", "a/both", T=FLOAT),
    ]
    assert outputs(*begun(), *loop("a", "x", *body, gives="a/both")) == ["a/value/Exit"]
    chosen = [
        node("in", "Switch", "x", "p", T=FLOAT),
        node("zero", "Switch", "0", "p", T=INT),
        placeholder("p", dtype=BOOL),
        *loop("a", "in", halved("a"), gives="a/half", counted="zero"),
        node("y", "Merge", "a/value/Exit", "in:1", T=FLOAT, N=2),
    ]
    assert outputs(*begun(), *chosen) == ["y"]


def checked():
    """A model with the checks and pictures that others look at."""
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


def test_what_checks_or_shows_a_tensor_is_no_output():
    assert outputs(*checked(), node("y", "Relu", "x", T=FLOAT)) == ["y"]


def test_what_checks_or_shows_is_the_output_where_nothing_else_is():
    assert outputs(*checked()) != []


def test_a_result_that_waits_for_its_check_is_an_output():
    nodes = [
        placeholder("x", 4),
        node("y", "Relu", "x", T=FLOAT),
        node("z", "Abs", "x", T=FLOAT),
        node("finite/CheckNumerics", "CheckNumerics", "y", T=FLOAT, message="no number"),
        node("finite/control_dependency", "Identity", "y", "^finite/CheckNumerics", T=FLOAT),
        node("sure", "CheckNumerics", "x", T=FLOAT, message="no number"),
    ]
    assert outputs(*nodes) == ["finite/control_dependency", "z", "sure"]
