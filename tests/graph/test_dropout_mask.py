"""The masks of dropout: which tensors are one, and how much of them is kept."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.graph.dropout import KeepRate, kept_with
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from tests.transforms.graphs import const, node, placeholder

RANDOM = [const("shape", [4], np.int32), node("random", "RandomUniform", "shape")]
ONE, ZERO = const("one", 1.0), const("zero", 0.0)
# As older releases of TensorFlow write a range: random * (1 - 0) + 0.
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
    ("op", "dropped", "kept"),
    [
        ("GreaterEqual", True, 0.75),
        ("Greater", True, 0.75),
        ("Less", False, 0.25),
        ("LessEqual", False, 0.25),
    ],
)
def test_a_comparison_drops_or_keeps_the_share(op: str, dropped: bool, kept: float) -> None:
    found = rate(*RANDOM, const("share", 0.25), node("mask", op, "random share"))
    assert found is not None
    assert (found.dropped, found.constant) == (dropped, kept)


def test_a_mask_of_numbers_is_cast() -> None:
    nodes = [*RANDOM, const("share", 0.25), node("bits", "GreaterEqual", "random share")]
    found = rate(*nodes, node("mask", "Cast", "bits"), is_number=True)
    assert found is not None
    assert found.constant == 0.75
    assert rate(*nodes, node("mask", "Relu", "bits"), is_number=True) is None
    assert rate(*nodes, is_number=True, mask="bits") is None


@pytest.mark.parametrize("inputs", ["share random", "random share"])
def test_the_floor_of_a_share_and_random_numbers_keeps_the_share(inputs: str) -> None:
    nodes = [*RANDOM, const("share", 0.25), node("sum", "Add", inputs)]
    found = rate(*nodes, node("mask", "Floor", "sum"), is_number=True)
    assert found is not None
    assert (found.dropped, found.constant) == (False, 0.25)


def test_the_floor_of_two_random_tensors_is_no_mask() -> None:
    nodes = [*RANDOM, node("sum", "Add", "random random"), node("mask", "Floor", "sum")]
    assert rate(*nodes, is_number=True) is None


def test_random_numbers_of_a_range_from_0_to_1() -> None:
    found = rate(*RANGE, const("share", 0.25), node("mask", "GreaterEqual", "spread share"))
    assert found is not None
    assert found.constant == 0.75


@pytest.mark.parametrize(
    ("changed", "value"),
    [("one", 2.0), ("zero", 0.5)],
)
def test_random_numbers_of_another_range_are_no_mask(changed: str, value: float) -> None:
    nodes = [const(changed, value) if n.name == changed else n for n in RANGE]
    assert rate(*nodes, const("share", 0.25), node("mask", "Less", "spread share")) is None


def test_a_comparison_with_what_is_not_random_is_no_mask() -> None:
    assert rate(placeholder(), ONE, node("mask", "Less", "x one")) is None
    assert rate(*RANDOM, ONE, node("mask", "Equal", "random one")) is None


def kept(*nodes: Node, dropped: bool) -> KeepRate:
    return KeepRate(Graph(nodes), parse_ref("share"), dropped, "random")


@pytest.mark.parametrize(
    ("dropped", "scale", "expected"),
    [(False, 4.0, True), (True, 4 / 3, True), (True, 4.0, False), (False, 0.0, False)],
)
def test_the_scale_is_one_divided_by_what_is_kept(
    dropped: bool, scale: float, expected: bool
) -> None:
    found = kept(const("share", 0.25), const("scale", scale), dropped=dropped)
    assert found.is_reciprocal(parse_ref("scale")) is expected


@pytest.mark.parametrize(("top", "expected"), [(1.0, True), (2.0, False)])
def test_a_scale_that_the_graph_works_out(top: float, expected: bool) -> None:
    nodes = [placeholder("share"), const("top", top), node("scale", "RealDiv", "top share")]
    assert kept(*nodes, dropped=False).is_reciprocal(parse_ref("scale")) is expected


@pytest.mark.parametrize(("one", "expected"), [(1.0, True), (2.0, False)])
def test_what_is_kept_is_one_less_what_is_dropped(one: float, expected: bool) -> None:
    found = kept(
        placeholder("share"), const("one", one), node("rest", "Sub", "one share"), dropped=True
    )
    assert found.constant is None
    assert found.is_rate(parse_ref("rest")) is expected
    assert not found.is_rate(parse_ref("share"))


def test_a_number_takes_constants_on_both_sides() -> None:
    nodes = [placeholder("x"), const("share", 0.5), node("other", "Mul", "share x")]
    assert not kept(*nodes, dropped=False).is_rate(parse_ref("other"))
