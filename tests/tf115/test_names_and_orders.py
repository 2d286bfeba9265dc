"""Names and orders that only 1.15 has, with what its tool answered."""

from __future__ import annotations

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.tf115.hash_order import hash_order
from mobileprep.tf115.node_hashes import NodeHashes
from mobileprep.tf115.serial_names import SerialNames


def test_serial_numbers_count_on() -> None:
    names = SerialNames()
    assert [names.constant("a/b", 0), names.constant("c", 1), names.constant("a/b", 0)] == [
        "a/b/_0__cf__0",
        "c/_1__cf__1",
        "a/b/_0__cf__2",
    ]
    assert SerialNames().constant("c", 0) == "c/_0__cf__0"


def test_a_set_of_names_keeps_each_once() -> None:
    names = [f"input_{i}" for i in range(40)]
    assert sorted(hash_order([*names, *names])) == sorted(names)
    assert hash_order(["a"]) == ["a"]


def test_a_name_counts_only_where_it_is_asked_for() -> None:
    a, b = (Node(name, "Op", (Ref("x"),)) for name in "ab")
    plain, named = NodeHashes(Graph([a, b]), ()), NodeHashes(Graph([a, b]), {"a"})
    assert plain.one(a) == plain.one(b) == named.one(b)
    assert named.one(a) != named.one(b)


def test_many_hashes_are_those_of_each() -> None:
    nodes = [Node(str(i), "Op", (Ref("x", i), Ref("y", -1)), device="/cpu:0") for i in range(40)]
    hashes = NodeHashes(Graph(nodes), {"3"})
    assert hashes.many(nodes) == [hashes.one(n) for n in nodes]
    assert len(set(hashes.many(nodes))) == len(nodes)


def test_the_first_output_hashes_the_same_however_it_is_spelt() -> None:
    short, long = Node("a", "Op", (Ref("x"),)), Node("a", "Op", (Ref("x", 0, explicit=True),))
    hashes = NodeHashes(Graph([short]), ())
    assert hashes.one(short) == hashes.one(long)
