"""Folded constants where 1.15 puts them, under its names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mobileprep.errors import TransformError
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.transforms.graphs import apply, const, node, placeholder


def folded(
    *nodes: Node, inputs: Sequence[str] = ("x",), outputs: Sequence[str] = ("out",)
) -> Graph:
    return apply("fold_constants", Graph(nodes), inputs=inputs, outputs=outputs, tf115=True).graph


SUM = [
    placeholder(),
    const("a", 1.0),
    const("b", 2.0),
    node("sum", "Add", "a b"),
    node("out", "Mul", "x sum"),
]


def test_constant_has_the_name_of_the_replaced_node() -> None:
    graph = folded(*SUM)
    assert {n.name for n in graph} == {"x", "sum/_0__cf__0", "out"}
    assert [str(r) for r in graph["out"].inputs] == ["x:0", "sum/_0__cf__0"]
    assert graph["sum/_0__cf__0"].attr_tensor("value").array().item() == 3


def test_constants_are_numbered_in_order_of_replaced_names() -> None:
    nodes = [
        placeholder(),
        const("c", 1.0),
        node("z", "Neg", "c"),
        node("y", "Exp", "c"),
        node("first", "Mul", "x z"),
        node("out", "Mul", "first y"),
    ]
    names = {n.name for n in folded(*nodes) if n.op == "Const"}
    assert names == {"y/_0__cf__0", "z/_1__cf__1"}


def test_inputs_stay_though_nothing_needs_them_and_come_last() -> None:
    graph = folded(*SUM, placeholder("unused"), inputs=("x", "unused"))
    assert {"x", "unused"} < {n.name for n in graph}
    assert {n.name for n in graph.nodes[-2:]} == {"x", "unused"}


def test_nodes_without_outputs_are_removed() -> None:
    graph = folded(*SUM, node("aside", "Neg", "x"))
    assert "aside" not in graph


def test_a_placeholder_with_a_default_loses_it() -> None:
    default = node("x", "PlaceholderWithDefault", "a", T=None)
    graph = folded(default, *SUM[1:])
    assert graph["x"].op == "Placeholder"
    assert graph["x"].inputs == ()


def test_non_placeholder_input_is_an_error() -> None:
    with pytest.raises(TransformError, match="the input 'mid' is a Neg, not a placeholder"):
        folded(placeholder(), node("mid", "Neg", "x"), node("out", "Neg", "mid"), inputs=("mid",))


def test_an_input_that_is_an_output_is_an_error() -> None:
    with pytest.raises(TransformError, match="'x' is an input and an output"):
        folded(*SUM, outputs=("x", "out"))
