"""What a benchmark feeds and computes where nothing is named."""

from __future__ import annotations

import pytest

from mobileprep.errors import UsageError
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.inspection.benchmark_runs import output_layers, zero_feeds
from tests.building.stages.jobs import op, placeholder


def test_the_graph_s_ends_are_computed_or_the_layer_that_the_original_asks_for() -> None:
    assert output_layers(Graph([placeholder((1,)), op("y", "Relu", "x")])) == ("y",)
    named = Graph([placeholder((1,)), op("output", "Relu", "x"), op("y", "Relu", "x")])
    assert output_layers(named) == ("output:0",)


def test_a_graph_without_ends_needs_a_name() -> None:
    with pytest.raises(UsageError, match="no layers are named"):
        output_layers(Graph([Node("n", "NoOp")]))


def test_sizes_that_are_not_known_are_1() -> None:
    (found,) = zero_feeds(Graph([placeholder((-1, 3))])).values()
    assert found.tolist() == [[0, 0, 0]]
