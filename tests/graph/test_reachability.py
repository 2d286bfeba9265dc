"""Dependencies and dependents of nodes."""

from __future__ import annotations

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import closure, dependents, reachable
from mobileprep.graph.refs import Ref, parse_ref


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
