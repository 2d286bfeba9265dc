"""Colocation constraints when nodes are removed or renamed."""

from __future__ import annotations

import pytest

from mobileprep.freezing.trace import extract
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import colocated, without_dangling
from mobileprep.graph.refs import Ref

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
