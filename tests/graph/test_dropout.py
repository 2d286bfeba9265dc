"""Detection of dropout and of its scale."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.graph.dropout import KeepRate, kept_with, masked, unscaled
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref, parse_ref
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


RANDOM = [const("shape", [4], np.int32), node("random", "RandomUniform", "shape")]
ONE, ZERO = const("one", 1.0), const("zero", 0.0)
# Older releases of TensorFlow write a range as random * (1 - 0) + 0.
RANGE = [
    *RANDOM,
    *(ONE, ZERO),
    node("width", "Sub", "one zero"),
    node("wide", "Mul", "random width"),
    node("spread", "Add", "wide zero"),
]


def rate(*nodes: Node, is_number: bool = False, mask: str = "mask") -> KeepRate | None:
    return kept_with(Graph(nodes), parse_ref(mask), is_number=is_number)


@pytest.mark.parametrize(
    ("op", "dropped", "constant"),
    [
        ("GreaterEqual", True, 0.75),
        ("Greater", True, 0.75),
        ("Less", False, 0.25),
        ("LessEqual", False, 0.25),
    ],
)
def test_comparison_with_random_numbers_is_a_mask(op: str, dropped: bool, constant: float) -> None:
    result = rate(*RANDOM, const("share", 0.25), node("mask", op, "random share"))
    assert result is not None
    assert (result.dropped, result.constant) == (dropped, constant)


def test_numeric_mask_needs_a_cast() -> None:
    nodes = [*RANDOM, const("share", 0.25), node("bits", "GreaterEqual", "random share")]
    result = rate(*nodes, node("mask", "Cast", "bits"), is_number=True)
    assert result is not None
    assert result.constant == 0.75
    assert rate(*nodes, node("mask", "Relu", "bits"), is_number=True) is None
    assert rate(*nodes, is_number=True, mask="bits") is None


@pytest.mark.parametrize("inputs", ["share random", "random share"])
def test_floor_of_random_plus_rate_is_a_mask(inputs: str) -> None:
    nodes = [*RANDOM, const("share", 0.25), node("sum", "Add", inputs)]
    result = rate(*nodes, node("mask", "Floor", "sum"), is_number=True)
    assert result is not None
    assert (result.dropped, result.constant) == (False, 0.25)


def test_floor_of_two_random_tensors_is_not_a_mask() -> None:
    nodes = [*RANDOM, node("sum", "Add", "random random"), node("mask", "Floor", "sum")]
    assert rate(*nodes, is_number=True) is None


def test_random_numbers_from_0_to_1_are_accepted() -> None:
    result = rate(*RANGE, const("share", 0.25), node("mask", "GreaterEqual", "spread share"))
    assert result is not None
    assert result.constant == 0.75


@pytest.mark.parametrize(
    ("changed", "value"),
    [("one", 2.0), ("zero", 0.5)],
)
def test_random_numbers_of_another_range_are_not_a_mask(changed: str, value: float) -> None:
    nodes = [const(changed, value) if n.name == changed else n for n in RANGE]
    assert rate(*nodes, const("share", 0.25), node("mask", "Less", "spread share")) is None


def test_comparison_without_random_numbers_is_not_a_mask() -> None:
    assert rate(placeholder(), ONE, node("mask", "Less", "x one")) is None
    assert rate(*RANDOM, ONE, node("mask", "Equal", "random one")) is None


def keep_rate(*nodes: Node, dropped: bool) -> KeepRate:
    return KeepRate(Graph(nodes), parse_ref("share"), dropped, "random")


@pytest.mark.parametrize(
    ("dropped", "scale", "expected"),
    [(False, 4.0, True), (True, 4 / 3, True), (True, 4.0, False), (False, 0.0, False)],
)
def test_reciprocal_of_the_keep_rate_is_recognized(
    dropped: bool, scale: float, expected: bool
) -> None:
    result = keep_rate(const("share", 0.25), const("scale", scale), dropped=dropped)
    assert result.is_reciprocal(parse_ref("scale")) is expected


@pytest.mark.parametrize(("top", "expected"), [(1.0, True), (2.0, False)])
def test_computed_reciprocal_is_recognized(top: float, expected: bool) -> None:
    nodes = [placeholder("share"), const("top", top), node("scale", "RealDiv", "top share")]
    assert keep_rate(*nodes, dropped=False).is_reciprocal(parse_ref("scale")) is expected


@pytest.mark.parametrize(("one", "expected"), [(1.0, True), (2.0, False)])
def test_keep_rate_is_one_minus_the_drop_rate(one: float, expected: bool) -> None:
    result = keep_rate(
        placeholder("share"), const("one", one), node("rest", "Sub", "one share"), dropped=True
    )
    assert result.constant is None
    assert result.is_rate(parse_ref("rest")) is expected
    assert not result.is_rate(parse_ref("share"))


def test_product_with_a_variable_factor_is_not_a_rate() -> None:
    nodes = [placeholder("x"), const("share", 0.5), node("other", "Mul", "share x")]
    assert not keep_rate(*nodes, dropped=False).is_rate(parse_ref("other"))
