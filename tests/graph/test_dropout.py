"""Detection of dropout and of its scale."""

from __future__ import annotations

import pytest

from mobileprep.graph.dropout import masked, unscaled
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from tests.transforms.graphs import const, node, placeholder

MASK = [
    placeholder(),
    const("rate", 0.25),
    const("keep", 0.75),
    node("random", "RandomUniform", "shape"),
    const("shape", [4]),
    node("chosen", "GreaterEqual", "random rate"),
    node("mask", "Cast", "chosen"),
    const("zero", 0.0),
    node("zeros", "ZerosLike", "x"),
    const("one", 1.0),
    const("more", [0.0, 0.0]),
]


def masked_tensor(op: str, inputs: str) -> Ref | None:
    match = masked(Graph([*MASK, node("out", op, inputs)]), node("out", op, inputs))
    return None if match is None else match[0]


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("Mul", "x mask"),
        ("Mul", "mask x"),
        ("Select", "chosen x zero"),
        ("SelectV2", "chosen x zeros"),
    ],
)
def test_masked_tensor_is_found(op: str, inputs: str) -> None:
    assert masked_tensor(op, inputs) == Ref("x")


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("Add", "x mask"),
        ("Mul", "x x"),
        ("Mul", "x mask x"),
        ("Select", "chosen x one"),
        ("Select", "chosen x more"),
        ("Select", "x x zero"),
        ("Select", "chosen x"),
        ("Fill", "chosen x zero"),
    ],
)
def test_other_nodes_are_not_dropout(op: str, inputs: str) -> None:
    assert masked_tensor(op, inputs) is None


@pytest.mark.parametrize(
    ("scaled", "expected"),
    [
        (node("scaled", "RealDiv", "x keep"), Ref("x")),
        (node("scaled", "Div", "x keep"), Ref("x")),
        (node("scaled", "RealDiv", "keep x"), None),
        (node("scaled", "RealDiv", "x rate"), None),
        (node("scaled", "Mul", "x up"), Ref("x")),
        (node("scaled", "Mul", "up x"), Ref("x")),
        (node("scaled", "Mul", "x keep"), None),
        (node("scaled", "Add", "x up"), None),
        (node("scaled", "Neg", "x"), None),
    ],
    ids=lambda x: f"{x.op}-{'-'.join(map(str, x.inputs))}" if isinstance(x, Node) else "",
)
def test_scale_must_be_the_reciprocal_of_the_keep_rate(scaled: Node, expected: Ref | None) -> None:
    graph = Graph([*MASK, const("up", 4 / 3), scaled, node("out", "Mul", "scaled mask")])
    dropout = masked(graph, graph["out"])
    assert dropout is not None
    assert unscaled(graph, *dropout) == expected
