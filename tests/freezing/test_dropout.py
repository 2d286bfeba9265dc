"""Removing dropout in each form that TensorFlow writes."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.freezing.training import remove_dropout
from mobileprep.graph.graph import Graph
from tests.freezing.graphs import FLOAT, const, frozen, listing, node, placeholder, source

INT = DType.INT32
BOOL = DType.BOOL


def scalar(name, number):
    return const(name, np.float32(number))


def draw(*, with_range=False):
    nodes = [
        node("shape", "Shape", "x", T=FLOAT, out_type=INT),
        node("u", "RandomUniform", "shape", T=INT, dtype=FLOAT),
    ]
    if not with_range:
        return nodes
    return [
        *nodes,
        scalar("one", 1.0),
        scalar("zero", 0.0),
        node("times", "Mul", "u", "one", T=FLOAT),
        node("even", "Add", "times", "zero", T=FLOAT),
    ]


def by_floor(keep=0.8, divisor=0.8):
    """Return dropout as in TensorFlow 1.0 to 1.12."""
    return [
        *draw(with_range=True),
        scalar("keep", keep),
        scalar("divisor", divisor),
        node("sum", "Add", "keep", "even", T=FLOAT),
        node("mask", "Floor", "sum", T=FLOAT),
        node("scaled", "RealDiv", "x", "divisor", T=FLOAT),
        node("y", "Mul", "scaled", "mask", "^x", T=FLOAT),
    ]


def by_cast(rate=0.2, scale=1.25):
    """Return dropout as in TensorFlow 1.13 to 2.0."""
    return [
        *draw(with_range=True),
        scalar("rate", rate),
        scalar("scale", scale),
        node("above", "GreaterEqual", "even", "rate", T=FLOAT),
        node("mask", "Cast", "above", SrcT=BOOL, DstT=FLOAT),
        node("scaled", "Mul", "x", "scale", T=FLOAT),
        node("y", "Mul", "scaled", "mask", "^x", T=FLOAT),
    ]


def by_select(rate=0.2, scale=1.25, other=0.0):
    """Return dropout as in newer TensorFlow, with a rate computed from constants."""
    return [
        *draw(),
        scalar("one_", 1.0),
        scalar("keep", 1 - rate),
        node("rate", "Sub", "one_", "keep", T=FLOAT),
        scalar("scale", scale),
        scalar("other", other),
        node("above", "GreaterEqual", "u", "rate", T=FLOAT),
        node("scaled", "Mul", "scale", "x", T=FLOAT),
        node("y", "SelectV2", "above", "scaled", "other", "^x", T=FLOAT),
    ]


@pytest.mark.parametrize("form", [by_floor, by_cast, by_select])
def test_dropout_becomes_its_input(form):
    result = frozen(source([placeholder("x", 3), *form()]), "y")
    assert listing(result.graph) == ["x = Placeholder()", "y = Identity(x, ^x)"]
    assert result.warnings == ("1 dropout layers were removed",)


def test_removal_can_be_disabled():
    model = source([placeholder("x", 3), *by_cast()])
    assert frozen(model, "y", remove_dropout=False).graph is model.graph


@pytest.mark.parametrize(
    "nodes",
    [
        by_floor(divisor=0.5),
        by_floor(keep=0.0, divisor=0.0),
        by_cast(scale=2.0),
        by_cast(rate=1.5),
        by_select(other=1.0),
        by_select(scale=1.0),
        [n for n in by_cast() if n.name != "rate"] + [placeholder("rate")],
        [n for n in by_cast() if n.name != "u"] + [placeholder("u", 3)],
        [n for n in by_cast() if n.name != "one"] + [scalar("one", 2.0)],
    ],
)
def test_similar_nodes_are_not_removed(nodes):
    graph = Graph([placeholder("x", 3), *nodes])
    assert remove_dropout(graph).count == 0


def test_dropout_in_a_branch_is_not_removed():
    switch = node("x", "Switch", "in", "p", T=FLOAT)
    nodes = [placeholder("in", 3), placeholder("p", dtype=BOOL), switch, *by_cast()]
    assert remove_dropout(Graph(nodes)).count == 0
