"""Nodes taken out, and what they fed connected to what takes their place."""

from __future__ import annotations

import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.bypass import FED_OR_FETCHED, Bypass
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref, parse_ref


def graph(**nodes: str) -> Graph:
    """Nodes by name, each given by its op and its inputs."""
    split = {name: text.split() for name, text in nodes.items()}
    return Graph([Node(n, op, tuple(map(parse_ref, refs))) for n, (op, *refs) in split.items()])


CHAIN = graph(x="Op", a="Op x:1", b="Op a", out="Op b a ^b")


def test_consumers_take_what_stands_at_the_end_of_the_nodes_that_are_gone() -> None:
    bypass = Bypass(CHAIN, ())
    assert bypass.take_out(CHAIN["a"], Ref("x", 1))
    assert bypass.take_out(CHAIN["b"], Ref("a"))
    done = bypass.result()
    assert [str(r) for r in done.graph["out"].inputs] == ["x:1", "x:1", "^x"]
    assert ([n.name for n in done.graph], done.matched) == (["x", "out"], 2)


def test_what_nothing_uses_any_more_goes_where_that_is_asked_for() -> None:
    made = graph(x="Op", scale="Const", a="Op x scale", out="Op a")
    for with_unused, names in ((True, ["x", "scale", "out"]), (False, ["x", "out"])):
        bypass = Bypass(made, ())
        assert bypass.take_out(made["a"], Ref("x"))
        assert [n.name for n in bypass.result(with_unused=with_unused).graph] == names


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (graph(x="Op", a="Op x", out="Op a:1"), "an output that nothing could replace is used"),
        (graph(x="Op", w="Op", a="Op x ^w", out="Op a"), "it waits for other nodes"),
        (graph(x="Switch", a="Op x", out="Op ^a"), "it determines which branch runs"),
        (
            graph(s="Switch", x="Op", a="Op x ^s", out="Op a"),
            "its control inputs decide whether it runs",
        ),
    ],
)
def test_a_node_that_the_graph_relies_on_stays(made: Graph, reason: str) -> None:
    bypass = Bypass(made, ())
    assert not bypass.take_out(made["a"], Ref("x"))
    done = bypass.result()
    assert done.graph is made
    assert done.skipped == {reason: 1}


def test_protected_nodes_stay() -> None:
    bypass = Bypass(CHAIN, {"a"})
    assert not bypass.take_out(CHAIN["a"], Ref("x", 1))
    assert bypass.result().skipped == {FED_OR_FETCHED: 1}


def test_an_input_that_is_not_there_is_an_error() -> None:
    with pytest.raises(InvalidGraphError):
        Bypass(graph(a="Op gone"), ())
