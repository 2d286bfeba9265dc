"""Names and orders that only 1.15 has, with what its tool answered."""

from __future__ import annotations

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from mobileprep.transforms.tf115 import NodeHashes, combine


def test_hashes_combine_in_64_bits() -> None:
    most = (1 << 64) - 1
    # By hand: first ^ (second + 0x9E3779B97F4A7800 + (first << 10) + (first >> 4)).
    assert combine(5, 7) == 5 ^ (7 + 0x9E3779B97F4A7800 + 5 * 1024)
    assert combine(16, 0) == 16 ^ (0x9E3779B97F4A7800 + 16 * 1024 + 1)
    assert combine(most, most) == most ^ (
        (most + 0x9E3779B97F4A7800 + (most - 1023) + (most >> 4)) % 2**64
    )


def test_a_name_counts_only_where_it_is_asked_for() -> None:
    a, b = (Node(name, "Op", (Ref("x"),)) for name in "ab")
    plain, named = NodeHashes(Graph([a, b]), ()), NodeHashes(Graph([a, b]), {"a"})
    assert plain.of(a) == plain.of(b) == named.of(b)
    assert named.of(a) != named.of(b)


def test_the_first_output_hashes_the_same_however_it_is_spelt() -> None:
    short, long = Node("a", "Op", (Ref("x"),)), Node("a", "Op", (Ref("x", 0, explicit=True),))
    hashes = NodeHashes(Graph([short]), ())
    assert hashes.of(short) == hashes.of(long)
