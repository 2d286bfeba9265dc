"""Detection of unused nodes."""

from __future__ import annotations

from mobileprep.graph.reachability import unused, without_newly_unused, without_orphans
from tests.graph.graphs import small_graph

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
