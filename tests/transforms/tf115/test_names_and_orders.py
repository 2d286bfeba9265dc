"""Names and orders that only 1.15 has, with what its tool answered."""

from __future__ import annotations

from functools import reduce

import pytest

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from mobileprep.transforms.tf115.node_hashes import NodeHashes, SerialNames, combine, combine_rows


def test_serial_numbers_count_on() -> None:
    names = SerialNames()
    assert [names.constant("a/b", 0), names.constant("c", 1), names.constant("a/b", 0)] == [
        "a/b/_0__cf__0",
        "c/_1__cf__1",
        "a/b/_0__cf__2",
    ]
    assert SerialNames().constant("c", 0) == "c/_0__cf__0"


def test_a_number_whose_name_is_taken_is_passed_over() -> None:
    names = SerialNames()
    taken = {"a/_0__cf__0", "a/_1__cf__1"}
    assert names.constant("a", 0, taken) == "a/_0__cf__1"
    assert names.constant("a", 1, taken) == "a/_1__cf__2"


def test_hashes_combine_in_64_bits() -> None:
    most = (1 << 64) - 1
    # By hand: first ^ (second + 0x9E3779B97F4A7800 + (first << 10) + (first >> 4)).
    assert combine(5, 7) == 5 ^ (7 + 0x9E3779B97F4A7800 + 5 * 1024)
    assert combine(16, 0) == 16 ^ (0x9E3779B97F4A7800 + 16 * 1024 + 1)
    assert combine(most, most) == most ^ (
        (most + 0x9E3779B97F4A7800 + (most - 1023) + (most >> 4)) % 2**64
    )


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 40])
def test_rows_of_any_length_combine_as_their_parts_do(count: int) -> None:
    big = 0xFEDCBA9876543210
    rows = [[big ^ i, *(big >> k ^ i for k in range(i % 2 + 1))] for i in range(count)]
    assert combine_rows(rows) == [reduce(combine, row) for row in rows]


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
