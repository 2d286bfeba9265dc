"""Branches and loops of Switch, Merge, Enter, and Exit."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError, UsageError
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.graphs import c, f32, n, p

TRUE, FALSE = np.array(True), np.array(False)


def branch() -> list[Node]:
    """y = 2 x if "on" is true, else 7; "which" is the branch index."""
    return [
        p("x"),
        p("on", np.bool_),
        n("switch", "Switch", "x", "on"),
        n("yes", "Identity", "switch:1"),
        n("pivot", "Switch", "on", "on"),
        n("no", "Identity", "pivot"),
        c("two", 2.0, "^yes"),
        n("double", "Mul", "switch:1", "two"),
        c("seven", 7.0, "^no"),
        n("y", "Merge", "seven", "double"),
        n("which", "Identity", "y:1"),
    ]


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize(("on", "expected"), [(TRUE, [6, 1]), (FALSE, [7, 0])])
def test_branch(on: np.ndarray, expected: list[int], combine: bool) -> None:
    runner = Interpreter(Graph(branch()), combine=combine)
    out = runner.run(["y", "which"], {"x": f32(3), "on": on})
    assert [a.tolist() for a in out] == expected
    assert out[1].dtype == np.int32


@pytest.mark.parametrize("combine", [False, True])
def test_branch_of_constants(combine: bool) -> None:
    sums = [
        n("add_yes", "Add", "a_yes", "b_yes"),
        n("add_no", "Add", "a_no", "b_no"),
        n("y", "Merge", "add_no", "add_yes"),
    ]
    pairs = [c(f"{name}_{way}", 1.0, f"^{way}") for name in "ab" for way in ("yes", "no")]
    nodes = [*branch()[:6], *pairs, *sums, n("which", "Identity", "y:1")]
    runner = Interpreter(Graph(nodes), combine=combine)
    for on, which in ((TRUE, 1), (FALSE, 0)):
        assert runner.run(["which"], {"x": f32(3), "on": on})[0] == which


def test_nodes_after_the_merge_always_run() -> None:
    graph = Graph([*branch(), n("z", "Neg", "y", "^y")])
    for on, expected in ((TRUE, -6), (FALSE, -7)):
        assert Interpreter(graph).run(["z"], {"x": f32(3), "on": on})[0].tolist() == expected


def test_tensor_of_inactive_branch_cannot_be_fetched() -> None:
    runner = Interpreter(Graph(branch()))
    assert runner.run(["double"], {"x": f32(3), "on": TRUE})[0].tolist() == 6
    with pytest.raises(UsageError, match="'double' was not computed: its branch was not taken"):
        runner.run(["double"], {"x": f32(3), "on": FALSE})


def test_inactive_branch_does_not_run() -> None:
    nodes = [*branch()[:-2], n("bad", "CheckNumerics", "double"), n("y", "Merge", "seven", "bad")]
    runner = Interpreter(Graph(nodes))
    assert runner.run(["y"], {"x": f32(np.nan), "on": FALSE})[0].tolist() == 7
    with pytest.raises(InvalidGraphError, match="found NaN"):
        runner.run(["y"], {"x": f32(np.nan), "on": TRUE})


def frozen_branch(on: bool) -> list[Node]:
    """A branch with a frozen predicate; the inactive branch has an unsupported op."""
    return [
        p("x"),
        c("on", on, dtype=bool),
        n("pred", "Identity", "on"),
        n("switch", "Switch", "x", "pred"),
        n("train", "Frobnicate", "switch:1"),
        n("infer", "Neg", "switch"),
        n("y", "Merge", "infer", "train"),
        n("z", "Relu", "y"),
    ]


def test_unsupported_op_in_dead_branch_is_allowed() -> None:
    out = Interpreter(Graph(frozen_branch(on=False))).run(["z", "y:1"], {"x": f32(-3)})
    assert [a.tolist() for a in out] == [3, 0]
    with pytest.raises(UnsupportedError, match="Frobnicate"):
        Interpreter(Graph(frozen_branch(on=True))).run(["z"], {"x": f32(-3)})
    with pytest.raises(UsageError, match="'train' is in a branch that never runs"):
        Interpreter(Graph(frozen_branch(on=False))).run(["train"], {"x": f32(-3)})


def loop(*, step: Node | None = None, start: str = "x") -> list[Node]:
    """y = x doubled until it exceeds "limit"; "turns" is the number of iterations."""
    name = {"frame_name": "loop"}
    return [
        p("x"),
        p("limit"),
        c("zero", 0),
        n("enter", "Enter", start, **name),
        n("enter_count", "Enter", "zero", **name),
        n("enter_limit", "Enter", "limit", **name, is_constant=True),
        n("value", "Merge", "enter", "next"),
        n("count", "Merge", "enter_count", "next_count"),
        n("less", "Less", "value", "enter_limit"),
        n("go", "LoopCond", "less"),
        n("switch", "Switch", "value", "go"),
        n("switch_count", "Switch", "count", "go"),
        n("body", "Identity", "switch:1"),
        c("two", 2.0, "^body"),
        c("one", 1, "^body"),
        step or n("double", "Mul", "body", "two"),
        n("increment", "AddV2", "switch_count:1", "one"),
        n("next", "NextIteration", "double"),
        n("next_count", "NextIteration", "increment"),
        n("y", "Exit", "switch"),
        n("turns", "Exit", "switch_count"),
    ]


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize(("limit", "expected"), [(100, [192, 6]), (3, [3, 0])])
def test_loop(limit: float, expected: list[int], combine: bool) -> None:
    runner = Interpreter(Graph(loop()), combine=combine)
    out = runner.run(["y", "turns"], {"x": f32(3), "limit": f32(limit)})
    assert [a.tolist() for a in out] == expected


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("source", ["enter_limit", "constant"])
@pytest.mark.parametrize(("limit", "expected"), [(100, [192, 6, 100]), (3, [3, 0, 3])])
def test_body_returns_an_outer_tensor(
    source: str, limit: float, expected: list[float], combine: bool
) -> None:
    nodes = [
        *loop(),
        c("constant", 100.0, "^body"),
        n("enter_last", "Enter", "x", frame_name="loop"),
        n("last", "Merge", "enter_last", "next_last"),
        n("switch_last", "Switch", "last", "go"),
        n("next_last", "NextIteration", source),
        n("z", "Exit", "switch_last"),
    ]
    runner = Interpreter(Graph(nodes), combine=combine)
    out = runner.run(["y", "turns", "z"], {"x": f32(3), "limit": f32(limit)})
    assert [a.tolist() for a in out] == expected


def test_loop_without_condition_is_refused() -> None:
    nodes = [n("go", "Identity", "less") if node.name == "go" else node for node in loop()]
    with pytest.raises(InvalidGraphError, match="has 0 LoopCond nodes, not 1"):
        Interpreter(Graph(nodes)).run(["y"], {"x": f32(3), "limit": f32(100)})


def test_loop_runs_again() -> None:
    runner = Interpreter(Graph(loop()))
    for _ in range(2):
        assert runner.run(["turns"], {"x": f32(3), "limit": f32(100)})[0].tolist() == 6


def test_loop_results_can_be_used() -> None:
    graph = Graph([*loop(), n("sum", "AddV2", "y", "x"), n("negated", "Neg", "sum")])
    assert Interpreter(graph).run(["negated"], {"x": f32(3), "limit": f32(100)})[0].tolist() == -195


def test_nodes_in_any_order() -> None:
    runner = Interpreter(Graph(reversed(loop())))
    assert runner.run(["turns"], {"x": f32(3), "limit": f32(100)})[0].tolist() == 6


def test_loop_in_inactive_branch_does_not_run() -> None:
    nodes = [
        *loop(start="gate:1"),
        p("on", np.bool_),
        n("gate", "Switch", "x", "on"),
        n("other", "Neg", "gate"),
        n("z", "Merge", "other", "y"),
    ]
    runner = Interpreter(Graph(nodes))
    for on, expected in ((TRUE, 192), (FALSE, -3)):
        feeds = {"x": f32(3), "limit": f32(100), "on": on}
        assert runner.run(["z"], feeds)[0].tolist() == expected


@pytest.mark.parametrize("combine", [False, True])
def test_node_after_a_loop_in_a_branch_runs_with_the_loop(combine: bool) -> None:
    """Merge uses its first computed input, so a dependent node must not run."""
    nodes = [
        *loop(start="gate:1"),
        p("on", np.bool_),
        n("gate", "Switch", "x", "on"),
        n("other", "Neg", "gate"),
        c("late", 5.0, "^y"),
        n("z", "Merge", "late", "other"),
        n("waiting", "Identity", "limit", "^turns"),
        n("other_limit", "Switch", "limit", "on"),
        n("w", "Merge", "waiting", "other_limit"),
    ]
    runner = Interpreter(Graph(nodes), combine=combine)
    for on, expected in ((TRUE, [5, 0, 100, 0]), (FALSE, [-3, 1, 100, 1])):
        feeds = {"x": f32(3), "limit": f32(100), "on": on}
        out = runner.run(["z", "z:1", "w", "w:1"], feeds)
        assert [a.tolist() for a in out] == expected


def test_tensor_in_a_loop_cannot_be_fetched() -> None:
    with pytest.raises(UsageError, match="'double' is inside a while loop"):
        Interpreter(Graph(loop())).run(["double"], {"x": f32(3), "limit": f32(100)})


def test_outer_constant_can_be_used_in_a_loop() -> None:
    step = n("double", "AddV2", "body", "ten")
    runner = Interpreter(Graph([*loop(step=step), c("ten", 10.0)]))
    assert runner.run(["y"], {"x": f32(3), "limit": f32(25)})[0].tolist() == 33


def test_failure_in_a_loop_names_the_node() -> None:
    step = n("double", "MatMul", "body", "two")
    with pytest.raises(
        InvalidGraphError, match=r"node 'double' \(MatMul\) cannot run on float32\[\]"
    ):
        Interpreter(Graph(loop(step=step))).run(["y"], {"x": f32(3), "limit": f32(100)})


def test_condition_without_a_loop_variable_is_refused() -> None:
    once = [n("once", "Enter", "x", frame_name="loop"), n("merged", "Merge", "once")]
    rest = [node for node in loop() if node.name != "less"]
    graph = Graph([*rest, *once, n("less", "Less", "merged", "enter_limit")])
    with pytest.raises(InvalidGraphError, match=r"'less' \(Less\) cannot run on nothing"):
        Interpreter(graph).run(["y"], {"x": f32(3), "limit": f32(100)})


def test_unsupported_op_in_a_loop_is_refused() -> None:
    step = n("double", "Frobnicate", "body")
    with pytest.raises(UnsupportedError, match="node 'double' has the op 'Frobnicate'"):
        Interpreter(Graph(loop(step=step))).run(["y"], {"x": f32(3), "limit": f32(100)})


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([p("x"), n("y", "Exit", "x")], "leaves a loop that it is not in"),
        (
            [
                p("x"),
                n("a", "Enter", "x", frame_name="a"),
                n("b", "Enter", "x", frame_name="b"),
                n("sum", "Add", "a", "b"),
                n("y", "Exit", "sum"),
            ],
            "takes tensors of two loops",
        ),
        (
            [
                p("x"),
                n("a", "Enter", "x", frame_name="a"),
                n("head", "Merge", "x", "next"),
                n("sum", "Add", "head", "a"),
                n("next", "NextIteration", "sum"),
                n("y", "Exit", "sum"),
            ],
            "does not join the first value of a loop with later ones",
        ),
        (
            [
                p("x"),
                n("a", "Enter", frame_name="a"),
                n("head", "Merge", "a", "next"),
                n("sum", "Add", "head", "head"),
                n("next", "NextIteration", "sum"),
                n("y", "Exit", "sum"),
            ],
            "of a loop takes no tensor",
        ),
        (
            [
                p("x"),
                n("a", "Enter", "x", frame_name="a"),
                n("head", "Merge", "a", "next"),
                n("next", "NextIteration", "^head"),
                n("y", "Exit", "head"),
            ],
            "of a loop takes no tensor",
        ),
        (
            [p("x"), n("next", "NextIteration", "x"), n("y", "AddV2", "next", "x")],
            "goes round a loop that it is not in",
        ),
    ],
    ids=["exit", "two loops", "head", "enter", "next without input", "next"],
)
def test_malformed_loops_are_refused(nodes: list[Node], message: str) -> None:
    with pytest.raises(InvalidGraphError, match=message):
        Interpreter(Graph(nodes)).run(["y"], {"x": f32(3)})
