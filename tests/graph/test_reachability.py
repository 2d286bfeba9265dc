"""What nodes need, and what needs them."""

from __future__ import annotations

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import closure, dependents, reachable
from mobileprep.graph.refs import Ref, parse_ref


def graph(**inputs: str) -> Graph:
    return Graph([Node(n, "Op", tuple(map(parse_ref, t.split()))) for n, t in inputs.items()])


def test_data_and_control_both_count_and_circles_end() -> None:
    made = graph(a="", b="a:1", c="^b", d="", e="d c", loop="a back", back="loop")
    assert dependents(made, ["b"]) == {"b", "c", "e"}
    assert dependents(made, ["a"]) == {"a", "b", "c", "e", "loop", "back"}
    assert dependents(made, ["d", "c"]) == {"d", "c", "e"}
    assert dependents(made, []) == set()


def test_control_dependencies_count_only_where_they_are_asked_for() -> None:
    made = graph(a="", b="a:1", c="^b", d="c", both="^b b")
    assert dependents(made, ["a"], through_control=False) == {"a", "b", "both"}
    assert reachable(made, ["d"]) == {"d", "c", "b", "a"}
    assert reachable(made, ["d"], through_control=False) == {"d", "c"}


def test_nothing_is_needed_for_a_tensor_that_is_fed() -> None:
    made = graph(a="", b="a", c="b b:1")
    assert reachable(made, ["c"], {Ref("b")}) == {"c", "b", "a"}
    assert reachable(made, ["c"], {Ref("b"), Ref("b", 1)}) == {"c"}
    assert reachable(made.by_name, ["c"], {Ref("a")}) == {"c", "b"}


def test_a_closure_asks_for_what_follows_each_item_once() -> None:
    asked: list[int] = []

    def following(number: int) -> list[int]:
        asked.append(number)
        return [number // 2, number // 3]

    assert closure([12, 12, 7], following) == {12, 6, 4, 3, 2, 1, 0, 7}
    assert sorted(asked) == [0, 1, 2, 3, 4, 6, 7, 12]
    assert closure([], following) == set()
