"""Costs of graphs."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import UsageError
from mobileprep.graph.graph import Graph
from mobileprep.runtime.accounting.costs import (
    GraphCosts,
    Recorder,
    TensorLayout,
    executed_costs,
    inferred_costs,
)
from mobileprep.runtime.interpreter import Interpreter
from tests.transforms.graphs import const, conv, node, normal, placeholder

SHAPE = (1, 8, 8, 3)


def network() -> Graph:
    """A convolution with 8 x 8 x 4 outputs, a view, an activation, and a sum of both."""
    return Graph(
        [
            placeholder(),
            const("w", normal(3, 3, 3, 4)),
            conv("conv", "x w"),
            node("same", "Identity", "conv"),
            node("relu", "Relu", "same"),
            node("out", "AddV2", "conv relu"),
            const("unused", normal(100)),
        ]
    )


def observed_costs(graph: Graph, x: np.ndarray, fetch: str = "out") -> GraphCosts:
    recorder = Recorder()
    Interpreter(graph, combine=False, observer=recorder).run([fetch], {"x": x})
    return executed_costs(graph, recorder.ran, {("x", 0): TensorLayout.of(x)}, [(fetch, 0)])


@pytest.fixture(params=["inferred", "observed"])
def costs(request: pytest.FixtureRequest) -> GraphCosts:
    if request.param == "inferred":
        return inferred_costs(network(), ["out"], {"x": SHAPE})
    return observed_costs(network(), normal(*SHAPE))


def test_flops_by_op(costs: GraphCosts) -> None:
    # Equal counts are sorted by name.
    assert list(costs.flops_by_op.items()) == [
        ("Conv2D", 2 * 256 * 27),
        ("AddV2", 256),
        ("Relu", 256),
    ]
    assert costs.flops == 2 * 256 * 27 + 512
    assert costs.uncounted == ()


def test_unused_parameters_are_not_counted(costs: GraphCosts) -> None:
    assert (costs.parameters, costs.parameter_bytes) == (108, 432)


def test_memory_traffic(costs: GraphCosts) -> None:
    traffic = {n.name: (n.read, n.written) for n in costs.nodes}
    assert traffic == {
        "conv": (192 * 4 + 432, 1024),
        "same": (0, 0),
        "relu": (1024, 1024),
        "out": (2048, 1024),
    }
    assert costs.moved == 1200 + 1024 + 2048 + 3072


def test_peak_memory(costs: GraphCosts) -> None:
    # The sum needs the convolution, its activation, and itself.
    assert costs.peak_bytes == 3 * 1024


def test_gather_reads_only_its_rows() -> None:
    graph = Graph(
        [
            placeholder(),
            const("rows", [0, 2], np.int32),
            const("axis", 0, np.int32),
            node("out", "GatherV2", "x rows axis", Tindices=None),
        ]
    )
    [cost] = observed_costs(graph, normal(1000, 4)).nodes
    assert (cost.read, cost.written) == (32 + 8 + 4, 32)


def test_loop_executions_add_up() -> None:
    recorder = Recorder()
    relu = node("relu", "Relu", "x")
    for _ in range(3):
        recorder([relu], 0.0, 0.0, [normal(4)])
    graph = Graph([placeholder(), relu])
    [cost] = executed_costs(graph, recorder.ran, {("x", 0): TensorLayout((4,), 4)}, []).nodes
    assert (cost.calls, cost.flops, cost.moved) == (3, 12, 96)


@pytest.mark.parametrize(("fetch", "feed"), [("none", "x"), ("out", "none")])
def test_missing_tensors_are_refused(fetch: str, feed: str) -> None:
    with pytest.raises(UsageError, match="'none' is not in the graph"):
        inferred_costs(network(), [fetch], {feed: SHAPE})


def test_ops_with_unknown_shapes_are_uncounted() -> None:
    costs = inferred_costs(network(), ["out"], {"x": (-1, 8, 8, 3)})
    assert costs.flops == 0
    assert costs.uncounted == ("AddV2", "Conv2D", "Relu")
