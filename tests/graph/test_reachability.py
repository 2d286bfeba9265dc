"""Dependencies and dependents of nodes."""

from __future__ import annotations

import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.freezing.trace import extract
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.frames import Branches, Frames
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import (
    closure,
    colocated,
    conditional_nodes,
    dependents,
    ends,
    execution_order,
    name_hint,
    nodes_of,
    placeholders,
    reachable,
    unused,
    without_dangling,
    without_newly_unused,
    without_orphans,
)
from mobileprep.graph.refs import Ref, parse_ref
from tests.graph.graphs import small_graph
from tests.transforms.graphs import node, placeholder


def graph_of(**inputs: str) -> Graph:
    return Graph([Node(n, "Op", tuple(map(parse_ref, t.split()))) for n, t in inputs.items()])


def test_dependents_follow_data_control_and_cycles() -> None:
    graph = graph_of(a="", b="a:1", c="^b", d="", e="d c", loop="a back", back="loop")
    assert dependents(graph, ["b"]) == {"b", "c", "e"}
    assert dependents(graph, ["a"]) == {"a", "b", "c", "e", "loop", "back"}
    assert dependents(graph, ["d", "c"]) == {"d", "c", "e"}
    assert dependents(graph, []) == set()


def test_control_dependencies_are_optional() -> None:
    graph = graph_of(a="", b="a:1", c="^b", d="c", both="^b b")
    assert dependents(graph, ["a"], through_control=False) == {"a", "b", "both"}
    assert reachable(graph, ["d"]) == {"d", "c", "b", "a"}
    assert reachable(graph, ["d"], through_control=False) == {"d", "c"}


def test_fed_tensors_have_no_dependencies() -> None:
    graph = graph_of(a="", b="a", c="b b:1")
    assert reachable(graph, ["c"], {Ref("b")}) == {"c", "b", "a"}
    assert reachable(graph, ["c"], {Ref("b"), Ref("b", 1)}) == {"c"}
    assert reachable(graph.by_name, ["c"], {Ref("a")}) == {"c", "b"}


def test_closure_expands_each_item_once() -> None:
    visited: list[int] = []

    def following(number: int) -> list[int]:
        visited.append(number)
        return [number // 2, number // 3]

    assert closure([12, 12, 7], following) == {12, 6, 4, 3, 2, 1, 0, 7}
    assert sorted(visited) == [0, 1, 2, 3, 4, 6, 7, 12]
    assert closure([], following) == set()


INVALID_UTF8 = b"loc:@\xff"


def colocated_node(*entries: bytes) -> Node:
    return Node("n", "Op", (Ref("\ufffd"),), attrs={"_class": AttrValue("list(string)", entries)})


def entries(node: Node) -> tuple[bytes, ...]:
    return node.attrs["_class"].value if "_class" in node.attrs else ()


def test_constraints_on_removed_nodes_are_removed() -> None:
    node = colocated_node(b"loc:@gone", b"loc:@here", b"other")
    assert entries(without_dangling([node], {"here"})[0]) == (b"loc:@here", b"other")
    assert without_dangling([colocated_node(b"loc:@gone")], {"here"})[0].attrs == {}
    assert without_dangling([node], {"gone", "here"})[0] is node


@pytest.mark.parametrize("kind", ["string", "list(int)"])
def test_attribute_of_another_kind_is_not_removed(kind: str) -> None:
    node = Node("n", "Op", attrs={"_class": AttrValue(kind, b"loc:@gone")})
    assert without_dangling([node], ()) == [node]


def test_constraints_follow_renamed_nodes() -> None:
    renamed = colocated(colocated_node(b"loc:@\xc3\xa4", b"loc:@b"), {"\xe4": "c", "b": None}.get)
    assert entries(renamed) == (b"loc:@c",)


def test_invalid_utf8_survives_renaming() -> None:
    node = colocated_node(INVALID_UTF8)
    assert colocated(node, lambda name: name) is node
    assert entries(colocated(node, lambda name: name + "/new")) == (INVALID_UTF8 + b"/new",)


def test_invalid_utf8_matches_no_node() -> None:
    # TensorFlow compares bytes. The name of this node is b"\xef\xbf\xbd" in UTF-8.
    graph = Graph([Node("\ufffd", "Const"), colocated_node(INVALID_UTF8), Node("unused", "Const")])
    assert entries(extract(graph, ["n"])["n"]) == ()
    named = Graph([graph["\ufffd"], colocated_node(b"loc:@\xef\xbf\xbd"), graph["unused"]])
    assert entries(extract(named, ["n"])["n"]) == (b"loc:@\xef\xbf\xbd",)


GRAPH = Graph(
    [
        Node("image", "Placeholder"),
        Node("old", "PlaceholderV2"),
        Node("weights", "Const"),
        Node("unused_control_flow_input", "Placeholder"),
        Node("sum", "AddN", (Ref("image"), Ref("old"), Ref("weights"))),
        Node("done", "NoOp"),
        Node("probabilities", "Softmax", (Ref("sum"),)),
    ]
)


def test_inputs_are_placeholders_and_outputs_are_unread_nodes() -> None:
    assert placeholders(GRAPH) == ["image", "old"]
    assert ends(GRAPH) == ["probabilities"]


def test_unread_placeholder_counts_if_it_is_the_only_one() -> None:
    assert placeholders(Graph([Node("x", "Placeholder")])) == ["x"]


def test_unread_exit_of_a_lowered_loop_is_not_an_output() -> None:
    exits = [Node("rnn/while/exit/_7", "Exit"), Node("while/Exit_1", "Exit")]
    assert ends(Graph([*exits, Node("y", "Identity")])) == ["while/Exit_1", "y"]
    assert ends(Graph(exits[:1])) == ["rnn/while/exit/_7"]


def test_nodes_of_tensor_names() -> None:
    assert nodes_of(["x", "x:1", "y:0", "^z"]) == {"x", "y", "z"}


@pytest.mark.parametrize(
    ("name", "what", "hint"),
    [
        ("probabilites", "output", "did you mean 'probabilities'?"),
        ("qqqq", "input", "its placeholders are image, old"),
        ("qqqq", "output", "nothing reads probabilities"),
    ],
)
def test_hint_for_an_unknown_name(name: str, what: str, hint: str) -> None:
    assert name_hint(GRAPH, name, what) == hint


def test_hint_for_an_empty_graph() -> None:
    assert name_hint(Graph(), "x", "input") == "look at the names in the graph"


def _order(*nodes):
    return [n.name for n in execution_order(Graph(nodes))]


def test_inputs_come_first_and_the_last_ready_node_is_next():
    nodes = [node("sum", "Add", "a b"), placeholder("a"), placeholder("b"), node("r", "Relu", "a")]
    assert _order(*nodes) == ["b", "a", "r", "sum"]


def test_node_that_reads_an_input_twice():
    assert _order(node("sum", "Add", "a a"), placeholder("a")) == ["a", "sum"]


def test_loop_starts_with_its_merge():
    nodes = [
        node("next", "NextIteration", "relu"),
        node("merge", "Merge", "enter next ^x"),
        node("relu", "Relu", "merge"),
        node("enter", "Enter", "x"),
        placeholder(),
    ]
    assert _order(*nodes) == ["x", "enter", "merge", "relu", "next"]


def test_cycles_and_consumers_of_missing_nodes_are_excluded():
    nodes = [
        node("a", "Relu", "b"),
        node("b", "Relu", "a"),
        node("c", "Relu", "lost"),
        placeholder(),
    ]
    assert _order(*nodes) == ["x"]


BEFORE = small_graph(a="Const", b="Op a a:1", c="Op ^b", d="Op c", out="Op d b", idle="Op a")


def test_inputs_of_unused_nodes_are_unused() -> None:
    after = BEFORE.with_nodes(n for n in BEFORE if n.name not in ("out", "idle"))
    assert unused(after, ["d"], lambda _: False) == {"d", "c", "b", "a"}
    assert unused(after, ["d"], lambda node: node.name == "b") == {"d", "c"}
    assert unused(after, ["c", "gone"], lambda _: False) == set()


def test_node_used_elsewhere_is_not_unused() -> None:
    assert unused(BEFORE, ["out"], lambda _: False) == {"out", "d", "c", "b"}


def test_previously_unused_nodes_are_not_removed() -> None:
    after = small_graph(a="Const", b="Op a a:1", c="Op ^b", d="Op c", out="Op", idle="Op a")
    result = without_newly_unused(BEFORE, after, protected=["c"])
    assert [n.name for n in result] == ["a", "b", "c", "out", "idle"]
    assert [n.name for n in without_newly_unused(BEFORE, after, ())] == ["a", "out", "idle"]


def test_orphans_are_constants_that_lost_their_last_use() -> None:
    before = small_graph(a="Const", b="Const", c="Const", d="Op", out="Op a b d")
    after = small_graph(a="Const", b="Const", c="Const", d="Op", out="Op")
    assert [n.name for n in without_orphans(after, before, {"b"})] == ["b", "c", "d", "out"]


def control_flow_node(name: str, op: str, inputs: str = "", frame: str = "") -> Node:
    attrs = {"frame_name": attr.string(frame)} if frame else {}
    return Node(name, op, tuple(map(parse_ref, inputs.split())), attrs=attrs)


LOOPS = [
    control_flow_node("x", "Placeholder"),
    control_flow_node("outer", "Enter", "x", "outer"),
    control_flow_node("merge", "Merge", "outer next"),
    control_flow_node("inner", "Enter", "merge", "inner"),
    control_flow_node("left_inner", "Exit", "inner"),
    control_flow_node("next", "NextIteration", "left_inner"),
    control_flow_node("left", "Exit", "merge"),
    control_flow_node("after", "Relu", "left"),
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
    enter, relu = control_flow_node("e", "Enter", "x", "loop"), control_flow_node("r", "Relu", "e")
    assert frames(enter, relu).of_node["r"].name == "loop"
    assert frames(enter, relu, fed=(("e", 0),)).of_node["r"].name == ""


def test_node_with_inputs_of_two_loops_is_refused() -> None:
    two = [
        control_flow_node("a", "Enter", "x", "a"),
        control_flow_node("b", "Enter", "x", "b"),
        control_flow_node("sum", "Add", "a b"),
    ]
    with pytest.raises(InvalidGraphError, match=r"'sum' .* takes tensors of two loops"):
        frames(*two)


def test_exit_outside_of_a_loop_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="leaves a loop that it is not in"):
        frames(control_flow_node("out", "Exit", "x"))


BRANCHES = [
    control_flow_node("pred", "Placeholder"),
    control_flow_node("same", "Identity", "pred"),
    control_flow_node("s", "Switch", "x pred"),
    control_flow_node("t", "Switch", "x same"),
    control_flow_node("yes", "Relu", "s:1"),
    control_flow_node("no", "Neg", "t"),
    control_flow_node("never", "Add", "yes no"),
    control_flow_node("merged", "Merge", "yes no"),
    control_flow_node("one", "Merge", "yes never"),
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
    graph = Graph(
        [
            *BRANCHES,
            control_flow_node("x", "Placeholder"),
            control_flow_node("waits", "NoOp", "^no"),
        ]
    )
    expected = {"s", "t", "yes", "no", "never", "merged", "one", "waits"}
    assert conditional_nodes(graph) == expected
