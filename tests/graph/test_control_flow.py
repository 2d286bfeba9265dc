"""Frames, branches and what hangs on them, of control flow v1."""

from __future__ import annotations

import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.graph import attrs as attr
from mobileprep.graph.branches import Branches
from mobileprep.graph.control_flow import conditional_nodes
from mobileprep.graph.frames import Frames
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref, parse_ref


def node(name: str, op: str, inputs: str = "", frame: str = "") -> Node:
    attrs = {"frame_name": attr.string(frame)} if frame else {}
    return Node(name, op, tuple(map(parse_ref, inputs.split())), attrs=attrs)


LOOPS = [
    node("x", "Placeholder"),
    node("outer", "Enter", "x", "outer"),
    node("merge", "Merge", "outer next"),
    node("inner", "Enter", "merge", "inner"),
    node("left_inner", "Exit", "inner"),
    node("next", "NextIteration", "left_inner"),
    node("left", "Exit", "merge"),
    node("after", "Relu", "left"),
]


def frames(*nodes: Node, fed: tuple[tuple[str, int], ...] = ()) -> Frames:
    return Frames(nodes, fed, "g.pb")


def test_each_node_is_in_the_loop_that_it_runs_in() -> None:
    found = frames(*LOOPS)
    names = {name: frame.name for name, frame in found.of_node.items()}
    assert names == {
        **dict.fromkeys(("x", "after"), ""),
        **dict.fromkeys(("outer", "merge", "next", "left"), "outer"),
        **dict.fromkeys(("inner", "left_inner"), "inner"),
    }
    assert [f.name for f in found.of_node["inner"].ancestors()] == ["inner", "outer", ""]
    assert (found.of_output("left").name, found.of_output("left_inner").name) == ("", "outer")
    assert [n.name for n in found.root.children[0].of_op({"Exit"})] == ["left"]


def test_a_tensor_that_is_fed_is_in_no_loop() -> None:
    enter, relu = node("e", "Enter", "x", "loop"), node("r", "Relu", "e")
    assert frames(enter, relu).of_node["r"].name == "loop"
    assert frames(enter, relu, fed=(("e", 0),)).of_node["r"].name == ""


def test_two_loops_do_not_meet() -> None:
    two = [node("a", "Enter", "x", "a"), node("b", "Enter", "x", "b"), node("sum", "Add", "a b")]
    with pytest.raises(InvalidGraphError, match=r"'sum' .* takes tensors of two loops"):
        frames(*two)


def test_nothing_leaves_a_loop_that_it_is_not_in() -> None:
    with pytest.raises(InvalidGraphError, match="leaves a loop that it is not in"):
        frames(node("out", "Exit", "x"))


BRANCHES = [
    node("pred", "Placeholder"),
    node("same", "Identity", "pred"),
    node("s", "Switch", "x pred"),
    node("t", "Switch", "x same"),
    node("yes", "Relu", "s:1"),
    node("no", "Neg", "t"),
    node("never", "Add", "yes no"),
    node("merged", "Merge", "yes no"),
    node("one", "Merge", "yes never"),
]


def branches(known: bool | None = None) -> Branches:
    found = Branches(lambda edge: known if edge == ("pred", 0) else None)
    for each in BRANCHES:
        found.add(each)
    return found


def test_a_node_runs_under_the_conditions_of_its_inputs() -> None:
    found = branches()
    assert found.of_node("yes") == {(("pred", 0), True)}
    assert found.of_node("no") == {(("pred", 0), False)}
    assert found.of_node("merged") == frozenset()
    assert found.of_node("one") == {(("pred", 0), True)}
    assert found.never(Ref("never"))
    assert not found.never(Ref("merged"))
    assert found.taken(BRANCHES[2]) is None


@pytest.mark.parametrize(("known", "dead"), [(True, "no"), (False, "yes")])
def test_a_known_predicate_leaves_one_branch(known: bool, dead: str) -> None:
    found = branches(known)
    assert {n for n in ("yes", "no") if found.never(Ref(n))} == {dead}
    assert found.taken(BRANCHES[2]) == int(known)


def test_all_behind_a_gate_is_conditional() -> None:
    graph = Graph([*BRANCHES, node("x", "Placeholder"), node("waits", "NoOp", "^no")])
    behind = {"s", "t", "yes", "no", "never", "merged", "one", "waits"}
    assert conditional_nodes(graph) == behind
