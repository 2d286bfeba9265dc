"""Constants behind a few operations of arithmetic."""

from __future__ import annotations

import pytest

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.rewriting.constants import ConstantExpressions
from tests.transforms.graphs import const, node, placeholder


def value(*nodes: Node, name: str = "out") -> Tensor | None:
    return ConstantExpressions(Graph([placeholder(), *nodes])).value(Ref(name))


def test_an_expression_is_worked_out() -> None:
    nodes = [const("a", [1.0, 4.0]), const("b", [3.0, 5.0])]
    nodes += [
        node("sum", "AddV2", "a b"),
        node("root", "Sqrt", "sum"),
        node("out", "Mul", "root b"),
    ]
    found = value(*nodes)
    assert found is not None
    assert found.array().tolist() == [6, 15]  # sqrt(4) * 3, sqrt(9) * 5


@pytest.mark.parametrize("inputs", ["x a", "a x", "a absent"])
def test_non_constant_expression_has_no_value(inputs: str) -> None:
    assert value(const("a", [1.0]), node("out", "Mul", inputs)) is None


def test_other_ops_are_not_expressions() -> None:
    assert value(const("a", [1.0]), node("out", "Exp", "a")) is None


@pytest.mark.parametrize(("size", "known"), [(1 << 16, True), ((1 << 16) + 1, False)])
def test_large_tensors_are_not_changed(size: int, known: bool) -> None:
    assert (value(const("a", [1.0] * size), node("out", "Neg", "a")) is not None) is known
