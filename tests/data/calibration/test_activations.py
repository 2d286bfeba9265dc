"""Ranges of activations, derived from the tensors before them."""

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


def ranges(model: Graph, tensors: Sequence[Edge], method: str, data: Samples) -> Any:
    task = subject(method, graph=model, tensors=tuple(tensors))
    return ranges_of([Watcher(task, data).observe(0, 40)], task.method)[0]


@pytest.mark.parametrize("op", ["Relu", "Relu6"])
@pytest.mark.parametrize("scale", [0.01, 1, 10, -1e-42])
@pytest.mark.parametrize("method", METHODS)
def test_range_matches_that_of_the_values(op: str, scale: float, method: str) -> None:
    data = Samples(np.abs(samples().rows) * np.float32(scale) - np.float32(scale) / 2)
    model = graph(n("y", op, "less"))
    both = ranges(model, [("less", 0), ("y", 0)], method, data)
    assert both["y", 0] == ranges(model, [("y", 0)], method, data)["y", 0]


@pytest.mark.parametrize("method", METHODS)
def test_each_reader_of_a_tensor_has_its_own_range(method: str) -> None:
    model = graph(n("one", "Relu", "less"), n("six", "Relu6", "less"), n("y", "Add", "one", "six"))
    data = Samples(samples().rows * np.float32(9))
    tensors = [(name, 0) for name in ("less", "one", "six")]
    assert ranges(model, tensors, method, data) == {
        **ranges(model, tensors[:1], method, data),
        **ranges(model, tensors[1:], method, data),
    }


def test_infinity_is_reported_at_its_source() -> None:
    data = samples()
    data.rows[7, 2] = -np.inf
    model = graph(n("y", "Relu6", "less"))
    with pytest.raises(AccuracyError, match="'less' is NaN or infinite for sample 7"):
        ranges(model, [("less", 0), ("y", 0)], "min_max", data)
