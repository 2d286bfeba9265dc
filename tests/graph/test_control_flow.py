"""Frames and branches of control flow v1."""

from __future__ import annotations

import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.graph import attrs as attr
from mobileprep.graph.frames import Branches, Frames
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import conditional_nodes
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


def test_nodes_are_assigned_to_their_loops() -> None:
    result = frames(*LOOPS)
    names = {name: frame.name for name, frame in result.of_node.items()}
    assert names == {
        **dict.fromkeys(("x", "after"), ""),
        **dict.fromkeys(("outer", "merge", "next", "left"), "outer"),
        **dict.fromkeys(("inner", "left_inner"), "inner"),
    }
    assert [f.name for f in result.of_node["inner"].ancestors()] == ["inner", "outer", ""]
    assert (result.of_output("left").name, result.of_output("left_inner").name) == ("", "outer")
    assert [n.name for n in result.root.children[0].of_op({"Exit"})] == ["left"]


def test_fed_tensor_is_outside_of_loops() -> None:
    enter, relu = node("e", "Enter", "x", "loop"), node("r", "Relu", "e")
    assert frames(enter, relu).of_node["r"].name == "loop"
    assert frames(enter, relu, fed=(("e", 0),)).of_node["r"].name == ""


def test_node_with_inputs_of_two_loops_is_refused() -> None:
    two = [node("a", "Enter", "x", "a"), node("b", "Enter", "x", "b"), node("sum", "Add", "a b")]
    with pytest.raises(InvalidGraphError, match=r"'sum' .* takes tensors of two loops"):
        frames(*two)


def test_exit_outside_of_a_loop_is_refused() -> None:
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


def branches(predicate: bool | None = None) -> Branches:
    result = Branches(lambda edge: predicate if edge == ("pred", 0) else None)
    for branch_node in BRANCHES:
        result.add(branch_node)
    return result


def test_conditions_of_inputs_are_combined() -> None:
    result = branches()
    assert result.of_node("yes") == {(("pred", 0), True)}
    assert result.of_node("no") == {(("pred", 0), False)}
    assert result.of_node("merged") == frozenset()
    assert result.of_node("one") == {(("pred", 0), True)}
    assert result.never(Ref("never"))
    assert not result.never(Ref("merged"))
    assert result.taken(BRANCHES[2]) is None


@pytest.mark.parametrize(("predicate", "dead"), [(True, "no"), (False, "yes")])
def test_constant_predicate_makes_one_branch_dead(predicate: bool, dead: str) -> None:
    result = branches(predicate)
    assert {n for n in ("yes", "no") if result.never(Ref(n))} == {dead}
    assert result.taken(BRANCHES[2]) == int(predicate)


def test_nodes_behind_a_switch_are_conditional() -> None:
    graph = Graph([*BRANCHES, node("x", "Placeholder"), node("waits", "NoOp", "^no")])
    expected = {"s", "t", "yes", "no", "never", "merged", "one", "waits"}
    assert conditional_nodes(graph) == expected
