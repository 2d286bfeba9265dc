"""CTC decoders at the end of graphs: recognized, and cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.targets.decoding import NoTailError, Tail, find_tail, without_tail
from tests.ops.graphs import run_all
from tests.transforms.graphs import const, node

GREEDY, BEAM = "CTCGreedyDecoder", "CTCBeamSearchDecoder"
VALUES = {GREEDY: 1, BEAM: 2}


def fed(name: str, dtype: DType, shape: Sequence[int]) -> Node:
    return node(name, "Placeholder", T=None, dtype=dtype, shape=attr.shape(tuple(shape)))


def speech(op: str = BEAM, lengths: str = "fed", **attrs: Any) -> list[Node]:
    """A network from "x" to a decoder of two paths, and its sequences as a matrix."""
    options = {"beam_width": 4, "top_paths": 2} if op == BEAM else {}
    sources = {
        "fed": [fed("lengths", DType.INT32, [2])],
        "constant": [const("lengths", [6, 4], np.int32)],
        "computed": [
            const("dims", [2], np.int32),
            const("steps", 6, np.int32),
            node("lengths", "Fill", "dims steps", index_type=DType.INT32),
        ],
    }
    nodes = [
        fed("x", DType.FLOAT, [6, 2, 5]),
        const("scale", 3.0),
        node("logits", "Mul", "x scale"),
        node("same", "Identity", "logits"),
        *sources[lengths],
        node("decoder", op, "same lengths", **{**options, **attrs}),
    ]
    index = VALUES[op]
    return [
        *nodes,
        const("default", -1, np.int64),
        node(
            "dense",
            "SparseToDense",
            f"decoder decoder:{2 * index} decoder:{index} default",
            T=DType.INT64,
            Tindices=DType.INT64,
        ),
        node("other", "Relu", "logits"),
    ]


def cut(nodes: Sequence[Node], outputs: Sequence[str]) -> tuple[Tail, Graph]:
    graph = Graph(nodes)
    tail = find_tail(graph, outputs)
    return tail, without_tail(graph, tail, [])


@pytest.mark.parametrize("op", [GREEDY, BEAM])
def test_decoder_is_replaced_by_its_logits(op: str) -> None:
    nodes = speech(op)
    tail, after = cut(nodes, ["dense", "other"])
    assert tail.outputs == ("logits", "other")
    assert {n.name for n in after} == {"x", "scale", "logits", "other"}
    # The kernel on the new output gives what the source computed.
    feeds = {"x": np.random.default_rng(0).normal(size=(6, 2, 5)).astype(np.float32)}
    lengths = np.int32([6, 4])
    names = [f"decoder:{i}" for i in range(2 * VALUES[op])]
    expected = Interpreter(Graph(nodes)).run(names, {**feeds, "lengths": lengths})
    (logits,) = Interpreter(after).run(["logits"], feeds)
    options = {"beam_width": 4, "top_paths": 2} if op == BEAM else {}
    for found, wanted in zip(run_all(op, logits, lengths, **options), expected, strict=False):
        np.testing.assert_array_equal(found, wanted)


def test_attributes_are_those_of_the_decoder() -> None:
    tail, _ = cut(speech(GREEDY, merge_repeated=True, blank_index=2), ["decoder:1"])
    found = tail.decoding
    assert (found.method, found.merge_repeated, found.blank) == ("greedy", True, 2)
    assert str(found) == "CTC greedy of logits; blank 2; repeated labels merged"
    tail, _ = cut(speech(merge_repeated=False), ["decoder:2"])
    found = tail.decoding
    assert (found.method, found.merge_repeated, found.blank) == ("beam search", False, -1)
    assert (found.beam_width, found.top_paths) == (4, 2)
    assert str(found) == "CTC beam search of logits; beam width 4; 2 paths"


def test_defaults_of_merge_repeated_are_those_of_the_ops() -> None:
    assert not cut(speech(GREEDY), ["dense"])[0].decoding.merge_repeated
    assert cut(speech(BEAM), ["dense"])[0].decoding.merge_repeated


def test_lengths() -> None:
    tail, _ = cut(speech(lengths="constant"), ["dense"])
    assert (tail.decoding.fixed_lengths, tail.decoding.lengths) == ((6, 4), "")
    tail, _ = cut(speech(lengths="fed"), ["dense"])
    assert (tail.decoding.fixed_lengths, tail.decoding.lengths) == ((), "")
    assert cut(speech(lengths="computed"), ["dense"])[0].decoding.fixed_lengths == (6, 6)
    nodes = [n for n in speech(lengths="fed") if n.name != "lengths"]
    computed = [
        fed("given", DType.INT32, [2]),
        const("two", 2, np.int32),
        node("lengths", "FloorDiv", "given two", T=DType.INT32),
    ]
    tail, after = cut([*computed, *nodes], ["dense"])
    assert tail.decoding.lengths == "lengths"
    assert tail.outputs == ("logits", "lengths")
    assert "given" in after


@pytest.mark.parametrize(
    ("more", "outputs", "message"),
    [
        ([], ["other"], "no output needs 'decoder'"),
        ([node("again", BEAM, "logits lengths")], ["dense"], "has 2 CTC decoders"),
        (
            [node("count", "Size", "decoder:2", T=DType.INT64)],
            ["count"],
            r"'count' \(Size\) computes more",
        ),
    ],
)
def test_other_graphs_are_refused(more: list[Node], outputs: list[str], message: str) -> None:
    with pytest.raises(NoTailError, match=message):
        find_tail(Graph([*speech(), *more]), outputs)


def test_graph_without_a_decoder_is_refused() -> None:
    with pytest.raises(NoTailError, match="has no CTC decoders"):
        find_tail(Graph([fed("x", DType.FLOAT, [1])]), ["x"])
