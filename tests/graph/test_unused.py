"""Nodes that lost their last use."""

from __future__ import annotations

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import unused, without_newly_unused, without_orphans
from mobileprep.graph.refs import parse_ref


def graph(**nodes: str) -> Graph:
    """Nodes by name, each given by its op and its inputs."""
    split = {name: text.split() for name, text in nodes.items()}
    return Graph([Node(n, op, tuple(map(parse_ref, refs))) for n, (op, *refs) in split.items()])


BEFORE = graph(a="Const", b="Op a a:1", c="Op ^b", d="Op c", out="Op d b", idle="Op a")


def test_what_only_served_unused_nodes_goes_with_them() -> None:
    after = BEFORE.with_nodes(n for n in BEFORE if n.name not in ("out", "idle"))
    assert unused(after, ["d"], lambda _: False) == {"d", "c", "b", "a"}
    assert unused(after, ["d"], lambda node: node.name == "b") == {"d", "c"}
    assert unused(after, ["c", "gone"], lambda _: False) == set()


def test_a_use_elsewhere_keeps_a_node() -> None:
    assert unused(BEFORE, ["out"], lambda _: False) == {"out", "d", "c", "b"}


def test_what_had_no_use_before_stays() -> None:
    after = graph(a="Const", b="Op a a:1", c="Op ^b", d="Op c", out="Op", idle="Op a")
    kept = without_newly_unused(BEFORE, after, protected=["c"])
    assert [n.name for n in kept] == ["a", "b", "c", "out", "idle"]
    assert [n.name for n in without_newly_unused(BEFORE, after, ())] == ["a", "out", "idle"]


def test_orphans_are_constants_that_lost_their_last_use() -> None:
    before = graph(a="Const", b="Const", c="Const", d="Op", out="Op a b d")
    after = graph(a="Const", b="Const", c="Const", d="Op", out="Op")
    assert [n.name for n in without_orphans(after, before, {"b"})] == ["b", "c", "d", "out"]
