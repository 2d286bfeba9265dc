"""Timing graphs from Python."""

from __future__ import annotations

import json

import pytest

from mobileprep import Graph, UsageError, benchmark
from mobileprep.formats.dtypes import DType
from tests.freezing.graphs import placeholder
from tests.transforms.graphs import node


def test_times_and_costs_are_those_of_the_runs_asked_for() -> None:
    told: list[str] = []
    graph = Graph([placeholder("x", -1, 4), node("out", "Relu", "x")])
    done = benchmark(graph, runs=3, warmup=2, tell=told.append)
    assert (done.timings.warmup.count, done.timings.plain.count) == (2, 3)
    assert done.costs is not None
    assert done.costs.flops == 4  # zeros of shape [1, 4]
    assert benchmark(graph, {"x": [[1.0] * 4] * 5}, runs=1).costs.flops == 20
    assert told[0] == "warming up, 2 runs"
    data = json.loads(json.dumps(done.as_data()))
    assert (data["engine"], data["flops"]) == ("numpy", 4)


def test_unknown_shape_must_be_fed() -> None:
    graph = Graph([node("x", "Placeholder", T=None, dtype=DType.FLOAT), node("out", "Relu", "x")])
    with pytest.raises(UsageError, match="the shape of 'x' is not known"):
        benchmark(graph, runs=1)
    assert benchmark(graph, {"x": [1.0, 2.0]}, runs=1).timings.plain.count == 1
