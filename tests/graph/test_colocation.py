"""Constraints on where nodes are placed, when nodes go or get other names."""

from __future__ import annotations

import pytest

from mobileprep.freezing.trace import extract
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import colocated, without_dangling
from mobileprep.graph.refs import Ref

NO_UTF_8 = b"loc:@\xff"


def beside(*entries: bytes) -> Node:
    return Node("n", "Op", (Ref("\ufffd"),), attrs={"_class": AttrValue("list(string)", entries)})


def entries(node: Node) -> tuple[bytes, ...]:
    return node.attrs["_class"].value if "_class" in node.attrs else ()


def test_constraints_on_nodes_that_are_gone_go_and_others_stay() -> None:
    node = beside(b"loc:@gone", b"loc:@here", b"other")
    assert entries(without_dangling([node], {"here"})[0]) == (b"loc:@here", b"other")
    assert without_dangling([beside(b"loc:@gone")], {"here"})[0].attrs == {}
    assert without_dangling([node], {"gone", "here"})[0] is node


@pytest.mark.parametrize("kind", ["string", "list(int)"])
def test_an_attribute_of_another_kind_is_left(kind: str) -> None:
    node = Node("n", "Op", attrs={"_class": AttrValue(kind, b"loc:@gone")})
    assert without_dangling([node], ()) == [node]


def test_names_follow_their_nodes() -> None:
    renamed = colocated(beside(b"loc:@\xc3\xa4", b"loc:@b"), {"\xe4": "c", "b": None}.get)
    assert entries(renamed) == (b"loc:@c",)


def test_bytes_that_are_no_utf_8_come_back_as_they_were() -> None:
    node = beside(NO_UTF_8)
    assert colocated(node, lambda name: name) is node
    assert entries(colocated(node, lambda name: name + "/new")) == (NO_UTF_8 + b"/new",)


def test_bytes_that_are_no_utf_8_name_no_node() -> None:
    # TensorFlow compares bytes; the names of nodes are UTF-8, that of this one b"\xef\xbf\xbd".
    graph = Graph([Node("\ufffd", "Const"), beside(NO_UTF_8), Node("unused", "Const")])
    assert entries(extract(graph, ["n"])["n"]) == ()
    named = Graph([graph["\ufffd"], beside(b"loc:@\xef\xbf\xbd"), graph["unused"]])
    assert entries(extract(named, ["n"])["n"]) == (b"loc:@\xef\xbf\xbd",)
