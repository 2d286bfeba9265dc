"""What an observer is told of each step."""

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

Seen = tuple[list[str], float, float, list[list[float]]]


def test_each_step_s_nodes_time_and_outputs_are_told_in_order() -> None:
    graph = Graph([placeholder(), node("a", "Neg", "x"), node("b", "Relu", "a")])
    seen: list[Seen] = []

    def observer(
        nodes: Sequence[Node], start: float, seconds: float, outputs: Sequence[Array]
    ) -> None:
        seen.append(([n.name for n in nodes], start, seconds, [x.tolist() for x in outputs]))

    begin = time.perf_counter()
    Interpreter(graph, observer=observer).run(["b"], {"x": np.array([-2, 1], np.float32)})
    end = time.perf_counter()
    assert [(names, outputs) for names, _, _, outputs in seen] == [
        (["a"], [[2, -1]]),
        (["b"], [[2, 0]]),
    ]
    for _, start, seconds, _ in seen:
        assert begin <= start
        assert seconds >= 0
        assert start + seconds <= end
    assert seen[0][1] + seen[0][2] <= seen[1][1]


def waiting_for(op: str, value: float) -> Graph:
    """A graph whose output waits for a node that takes a constant."""
    kept = [const("value", [value]), node("read", op, "value"), node("all", "NoOp", "^read")]
    return Graph([placeholder(), *kept, node("out", "Neg", "x ^all")])


def test_a_constant_that_outputs_only_wait_for_is_read_once() -> None:
    seen: list[str] = []

    def observer(
        nodes: Sequence[Node], start: float, seconds: float, outputs: Sequence[Array]
    ) -> None:
        seen.extend(n.name for n in nodes)

    runner = Interpreter(waiting_for("Identity", 1.0), observer=observer)
    runner.run(["out"], {"x": np.array([1], np.float32)})
    assert seen == ["out"]


def test_a_check_that_outputs_only_wait_for_fails() -> None:
    runner = Interpreter(waiting_for("CheckNumerics", np.nan))
    with pytest.raises(InvalidGraphError, match="read"):
        runner.run(["out"], {"x": np.array([1], np.float32)})
