"""Shapes of inputs that the graph does not specify."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.data.source import data_inputs
from mobileprep.graph.graph import Graph
from tests.ops.graphs import n, p


def graph(predicate: str) -> Graph:
    nodes = [p("x"), p("on", np.bool_), p("off", np.bool_), n("not", "LogicalNot", "off")]
    switch = n("switch", "Switch", "x", predicate)
    return Graph([*nodes, switch, n("y", "Merge", "switch:0", "switch:1")])


@pytest.mark.parametrize(
    ("predicate", "on", "off"), [("on", (), None), ("off", None, ()), ("not", None, None)]
)
def test_predicate_of_a_switch_is_a_scalar(predicate: str, on: object, off: object) -> None:
    inputs = data_inputs(graph(predicate), ["x", "on", "off"], {})
    assert [fed.shape for fed in inputs] == [None, on, off]


def test_declared_shape_takes_precedence() -> None:
    (fed,) = data_inputs(graph("on"), ["on"], {"on": (1,)})
    assert fed.shape == (1,)
