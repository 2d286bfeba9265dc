"""Removing nodes and rewiring their consumers."""

from __future__ import annotations

import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.bypass import FED_OR_FETCHED, Bypass
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Ref
from tests.graph.graphs import small_graph

CHAIN = small_graph(x="Op", a="Op x:1", b="Op a", out="Op b a ^b")


def test_consumers_are_rewired_through_all_removed_nodes() -> None:
    bypass = Bypass(CHAIN, ())
    assert bypass.take_out(CHAIN["a"], Ref("x", 1))
    assert bypass.take_out(CHAIN["b"], Ref("a"))
    result = bypass.result()
    assert [str(r) for r in result.graph["out"].inputs] == ["x:1", "x:1", "^x"]
    assert ([n.name for n in result.graph], result.matched) == (["x", "out"], 2)


def test_unused_inputs_are_removed_on_request() -> None:
    graph = small_graph(x="Op", scale="Const", a="Op x scale", out="Op a")
    for with_unused, names in ((True, ["x", "scale", "out"]), (False, ["x", "out"])):
        bypass = Bypass(graph, ())
        assert bypass.take_out(graph["a"], Ref("x"))
        assert [n.name for n in bypass.result(with_unused=with_unused).graph] == names


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (
            small_graph(x="Op", a="Op x", out="Op a:1"),
            "an output that nothing could replace is used",
        ),
        (small_graph(x="Op", w="Op", a="Op x ^w", out="Op a"), "it waits for other nodes"),
        (small_graph(x="Switch", a="Op x", out="Op ^a"), "it determines which branch runs"),
        (
            small_graph(s="Switch", x="Op", a="Op x ^s", out="Op a"),
            "its control inputs decide whether it runs",
        ),
    ],
)
def test_required_node_is_not_removed(graph: Graph, reason: str) -> None:
    bypass = Bypass(graph, ())
    assert not bypass.take_out(graph["a"], Ref("x"))
    result = bypass.result()
    assert result.graph is graph
    assert result.skipped == {reason: 1}


def test_protected_node_is_not_removed() -> None:
    bypass = Bypass(CHAIN, {"a"})
    assert not bypass.take_out(CHAIN["a"], Ref("x", 1))
    assert bypass.result().skipped == {FED_OR_FETCHED: 1}


def test_missing_input_is_an_error() -> None:
    with pytest.raises(InvalidGraphError):
        Bypass(small_graph(a="Op gone"), ())
