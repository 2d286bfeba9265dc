"""Spread of values before the first batch normalization."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.runtime.sampling.first_ops import first_norm_spread
from tests.building.stages.jobs import op, placeholder


def network(variance: float = 0.25, *, norm: str = "FusedBatchNorm") -> Graph:
    names = "scale", "offset", "mean", "variance"
    values = np.ones(2), np.zeros(2), np.zeros(2), np.full(2, variance)
    constants = [
        constant(name, Tensor.of(value.astype(np.float32)))
        for name, value in zip(names, values, strict=True)
    ]
    training = {"is_training": attr.boolean(False), "epsilon": attr.floating(1e-3)}
    nodes = [placeholder((-1, 4, 4, 2)), op("relu", "Relu", "x"), *constants]
    return Graph([*nodes, op("bn", norm, "relu", *names, **training)])


@pytest.mark.parametrize("scale", [1, 100])
def test_spread_of_the_input_channels(scale: float) -> None:
    x = np.abs(np.random.default_rng(0).normal(0, 1, (40, 4, 4, 2))).astype(np.float32) * scale
    spread = first_norm_spread(network(), [{"x": x[:20]}, {"x": x[20:]}])
    assert spread is not None
    assert (spread.node, spread.trained) == ("bn", 0.5)
    assert spread.found == pytest.approx(float(x.reshape(-1, 2).std(axis=0).mean()), rel=0.05)


def test_graph_without_normalization() -> None:
    graph = Graph([node for node in network() if node.name != "bn"])
    assert first_norm_spread(graph, [{"x": np.ones((1, 4, 4, 2), np.float32)}]) is None
    assert first_norm_spread(network(0.0), [{"x": np.ones((1, 4, 4, 2), np.float32)}]) is None
