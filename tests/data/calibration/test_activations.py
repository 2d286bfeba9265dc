"""The ends of what activations give, which follow from the tensors before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mobileprep.data.calibration.observation import Watcher
from mobileprep.data.calibration.ranges import ranges_of
from mobileprep.errors import AccuracyError
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Edge
from tests.building.stages.jobs import placeholder
from tests.data.calibration.graphs import Samples, samples, subject
from tests.ops.graphs import n

METHODS = ["min_max", "moving_average", "percentile", "mse", "entropy"]


def graph(*more: Any) -> Graph:
    """A tensor, its activation, and further readers of the tensor."""
    return Graph([placeholder((-1, 4)), n("less", "Neg", "x"), *more])


def ranges(wanted: Graph, tensors: Sequence[Edge], method: str, data: Samples) -> Any:
    asked = subject(method, graph=wanted, tensors=tuple(tensors))
    return ranges_of([Watcher(asked, data).observe(0, 40)], asked.method)[0]


@pytest.mark.parametrize("op", ["Relu", "Relu6"])
@pytest.mark.parametrize("scale", [0.01, 1, 10, -1e-42])
@pytest.mark.parametrize("method", METHODS)
def test_they_are_those_of_its_values(op: str, scale: float, method: str) -> None:
    data = Samples(np.abs(samples().rows) * np.float32(scale) - np.float32(scale) / 2)
    of = graph(n("y", op, "less"))
    both = ranges(of, [("less", 0), ("y", 0)], method, data)
    assert both["y", 0] == ranges(of, [("y", 0)], method, data)["y", 0]


@pytest.mark.parametrize("method", METHODS)
def test_several_readers_of_a_tensor_have_each_their_own(method: str) -> None:
    of = graph(n("one", "Relu", "less"), n("six", "Relu6", "less"), n("y", "Add", "one", "six"))
    data = Samples(samples().rows * np.float32(9))
    tensors = [(name, 0) for name in ("less", "one", "six")]
    assert ranges(of, tensors, method, data) == {
        **ranges(of, tensors[:1], method, data),
        **ranges(of, tensors[1:], method, data),
    }


def test_infinity_is_told_where_it_comes_up() -> None:
    data = samples()
    data.rows[7, 2] = -np.inf
    of = graph(n("y", "Relu6", "less"))
    with pytest.raises(AccuracyError, match="'less' is NaN or infinite for sample 7"):
        ranges(of, [("less", 0), ("y", 0)], "min_max", data)
