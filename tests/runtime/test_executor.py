"""Execution observers."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.runtime.interpreter import Interpreter
from tests.transforms.graphs import const, node, placeholder

Step = tuple[list[str], float, float, list[list[float]]]


def test_observer_gets_nodes_time_and_outputs_in_order() -> None:
    graph = Graph([placeholder(), node("a", "Neg", "x"), node("b", "Relu", "a")])
    steps: list[Step] = []

    def observer(
        nodes: Sequence[Node], start: float, seconds: float, outputs: Sequence[Array]
    ) -> None:
        steps.append(([n.name for n in nodes], start, seconds, [x.tolist() for x in outputs]))

    begin = time.perf_counter()
    Interpreter(graph, observer=observer).run(["b"], {"x": np.array([-2, 1], np.float32)})
    end = time.perf_counter()
    assert [(names, outputs) for names, _, _, outputs in steps] == [
        (["a"], [[2, -1]]),
        (["b"], [[2, 0]]),
    ]
    for _, start, seconds, _ in steps:
        assert begin <= start
        assert seconds >= 0
        assert start + seconds <= end
    assert steps[0][1] + steps[0][2] <= steps[1][1]


def controlled_by(op: str, value: float) -> Graph:
    """A graph whose output has a control input from a node that reads a constant."""
    nodes = [const("value", [value]), node("read", op, "value"), node("all", "NoOp", "^read")]
    return Graph([placeholder(), *nodes, node("out", "Neg", "x ^all")])


def test_constant_control_input_is_folded() -> None:
    names: list[str] = []
    graph = controlled_by("Identity", 1.0)
    runner = Interpreter(graph, observer=lambda nodes, *_: names.extend(n.name for n in nodes))
    runner.run(["out"], {"x": np.array([1], np.float32)})
    assert names == ["out"]


def test_failing_control_input_is_reported() -> None:
    runner = Interpreter(controlled_by("CheckNumerics", np.nan))
    with pytest.raises(InvalidGraphError, match="read"):
        runner.run(["out"], {"x": np.array([1], np.float32)})
