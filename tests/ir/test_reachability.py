"""What comes after nodes."""

from __future__ import annotations

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.reachability import dependents
from mobileprep.ir.refs import parse_ref


def graph(**inputs: str) -> Graph:
    return Graph([Node(n, "Op", tuple(map(parse_ref, t.split()))) for n, t in inputs.items()])


def test_data_and_control_both_count_and_circles_end() -> None:
    made = graph(a="", b="a:1", c="^b", d="", e="d c", loop="a back", back="loop")
    assert dependents(made, ["b"]) == {"b", "c", "e"}
    assert dependents(made, ["a"]) == {"a", "b", "c", "e", "loop", "back"}
    assert dependents(made, ["d", "c"]) == {"d", "c", "e"}
    assert dependents(made, []) == set()
