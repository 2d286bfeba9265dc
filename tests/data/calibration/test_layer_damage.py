"""The damage of each layer, quantized alone or left float alone."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.data.calibration.layers import (
    OutputComparison,
    OutputDamage,
    layer_damage,
    quantized_layers,
)
from mobileprep.errors import AccuracyError
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Ref
from tests.transforms.graphs import const, node, normal, placeholder

# How far "quantizing" moves the weights of each layer.
SHIFTS = {"first": 0.01, "second": 0.5, "out": 0.001}


def _network() -> Graph:
    return Graph(
        [
            placeholder(),
            const("w1", normal(8, 8, seed=1)),
            const("w2", normal(8, 8, seed=2)),
            const("w3", normal(8, 8, seed=3)),
            node("first", "MatMul", "x w1"),
            node("second", "MatMul", "first w2"),
            node("sum", "AddV2", "second x"),
            node("out", "MatMul", "sum w3"),
        ]
    )


def _quantize(floats: Collection[str]) -> Graph:
    """A substitute for a transform: replace the weights under new names."""
    graph = _network()
    nodes = []
    for n in graph:
        if n.name in SHIFTS and n.name not in floats:
            weights = graph[n.inputs[1].node].attr_tensor("value").array()
            nodes.append(const(f"{n.name}_weights", weights + SHIFTS[n.name]))
            n = n.with_inputs((n.inputs[0], Ref(f"{n.name}_weights")))
        nodes.append(n)
    return graph.with_nodes(nodes)


def _comparison(graph: Graph | None = None, *fetches: str) -> OutputComparison:
    feeds = [{"x": normal(2, 8, seed=10 + i)} for i in range(3)]
    return OutputComparison(graph or _network(), fetches or ("out",), feeds)


def test_quantized_layers_have_different_weights_or_ops() -> None:
    graph = _network()
    assert quantized_layers(graph, _quantize(())) == ("first", "second", "out")
    assert quantized_layers(graph, _quantize(["second"])) == ("first", "out")
    assert quantized_layers(graph, graph) == ()
    renamed = [replace(n, op="Mul") if n.name == "first" else n for n in graph]
    assert quantized_layers(graph, graph.with_nodes(renamed)) == ("first",)


def test_worst_layer_comes_first_and_benefits_most_from_float() -> None:
    calls = []
    layers = layer_damage(_network(), _quantize, _comparison(), lambda *at: calls.append(at))
    assert [layer.layer for layer in layers] == ["second", "first", "out"]
    assert {layer.op for layer in layers} == {"MatMul"}
    assert max(layers, key=lambda layer: layer.without.sqnr).layer == "second"
    assert layers[0].alone.share_of_peak > 10 * layers[0].without.share_of_peak
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_unquantized_graph_has_no_damage() -> None:
    assert layer_damage(_network(), lambda floats: _network(), _comparison()) == ()
    same = _comparison().damage(_network())
    assert (same.sqnr, same.share_of_peak) == (200, 0)


def test_damage_is_that_of_the_worst_output() -> None:
    quantized = _quantize(["first", "out"])
    both = _comparison(None, "first", "out").damage(quantized)
    assert both == _comparison().damage(quantized)


def test_missing_outputs_count_as_zeros() -> None:
    graph = _network()
    right = graph["w3"].attr_tensor("value").array()
    fewer, none = right[:, :7], np.zeros_like(right)
    none[:, :7] = fewer

    def damage(weights: np.ndarray) -> OutputDamage:
        nodes = [const("w3", weights) if n.name == "w3" else n for n in graph]
        return _comparison().damage(graph.with_nodes(nodes))

    assert damage(fewer) == damage(none)
    assert damage(np.hstack([right, right[:, :1]])).sqnr < damage(right).sqnr


@pytest.mark.parametrize("dims", [[2, 2, 4], [16, 1], [16]])
def test_incompatible_shapes_are_an_error(dims: list[int]) -> None:
    graph = Graph([placeholder(), node("out", "Identity", "x")])
    shaped = [const("dims", dims, np.int32), node("out", "Reshape", "x dims")]
    with pytest.raises(AccuracyError, match="has the shape"):
        _comparison(graph).damage(Graph([placeholder(), *shaped]))


def test_integer_outputs_count_by_the_share_that_differs() -> None:
    def classes(shift: float) -> Graph:
        return Graph(
            [
                placeholder(),
                const("b", np.linspace(0, shift, 8)),
                node("moved", "AddV2", "x b"),
                const("axis", 1, np.int32),
                node("out", "ArgMax", "moved axis"),
            ]
        )

    comparison = _comparison(classes(0.0))
    assert comparison.damage(classes(0.0)).share_of_peak == 0
    damage = comparison.damage(classes(100.0))
    assert 0 < damage.share_of_peak <= 1
    assert damage.sqnr == 200
