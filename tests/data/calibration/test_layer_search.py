"""The search for the layers to keep in float."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection

import numpy as np
import pytest
import yaml
from msgspec.structs import replace

from mobileprep.data.calibration.layers import (
    Levels,
    OutputComparison,
    OutputDamage,
    Try,
    best_try,
    layer_damage,
    layers_expression,
    nearest_try,
    next_levels,
    quantized_layers,
    recipe_rule,
    rule_text,
)
from mobileprep.errors import AccuracyError
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Ref
from tests.transforms.graphs import const, node, normal, placeholder

Holds = Callable[[Levels], bool]


def search_layers(layers: int, holds: Holds, limit: int = 100) -> list[Try]:
    tries: list[Try] = []
    while len(tries) < limit:
        levels = next_levels(layers, tries)
        if levels is None:
            return tries
        assert levels not in [one.levels for one in tries]
        tries.append(Try(levels, 0.0 if holds(levels) else 1.0))
    return tries


def best(tries: list[Try]) -> Levels | None:
    result = best_try(tries)
    return None if result is None else result.levels


@pytest.mark.parametrize("layers", [0, 1, 2, 5, 33])
def test_all_layers_are_quantized_if_accuracy_holds(layers: int) -> None:
    tries = search_layers(layers, lambda _: True)
    assert [one.levels for one in tries] == [Levels(0, 0)]
    assert best(tries) == Levels(0, 0)


@pytest.mark.parametrize("layers", [1, 2, 7, 27, 100])
def test_search_minimizes_weight_only_layers(layers: int) -> None:
    for needed in range(1, layers + 1):

        def holds(levels: Levels, needed: int = needed) -> bool:
            return levels.weights >= needed

        tries = search_layers(layers, holds)
        assert best(tries) == Levels(0, needed)
        assert len(tries) <= 2 + math.ceil(math.log2(layers))


@pytest.mark.parametrize("layers", [2, 3, 7, 27])
def test_search_minimizes_float_layers_then_weight_only_layers(layers: int) -> None:
    for floats in range(1, layers):
        for weights in range(layers - floats + 1):
            needed = Levels(floats, weights)

            def holds(levels: Levels, needed: Levels = needed) -> bool:
                out = levels.floats + levels.weights
                return levels.floats >= needed.floats and out >= needed.floats + needed.weights

            tries = search_layers(layers, holds)
            assert best(tries) == needed
            assert len(tries) <= 4 + 2 * math.ceil(math.log2(layers))


def test_number_of_trials_for_thirty_layers() -> None:
    weights = [search_layers(30, lambda levels, n=n: levels.weights >= n) for n in range(31)]  # type: ignore[misc]
    assert max(map(len, weights)) == 7
    floats = [
        search_layers(30, lambda levels, f=f, w=w: levels.floats >= f and sum_of(levels) >= f + w)  # type: ignore[misc]
        for f in range(1, 30)
        for w in range(31 - f)
    ]
    assert max(map(len, floats)) == 14


def sum_of(levels: Levels) -> int:
    return levels.floats + levels.weights


@pytest.mark.parametrize("layers", [0, 1, 2, 3, 27])
def test_one_layer_stays_quantized_if_the_search_fails(layers: int) -> None:
    tries = search_layers(layers, lambda _: False)
    assert best(tries) is None
    assert max(one.levels.floats for one in tries) == max(layers - 1, 0)
    assert len(tries) <= 3


def test_search_finds_an_isolated_solution() -> None:
    good = {Levels(0, 8), Levels(0, 3), Levels(0, 2)}
    tries = search_layers(8, good.__contains__)
    assert best(tries) in good


def test_interrupted_search_keeps_its_best_result() -> None:
    tries = search_layers(27, lambda levels: levels.weights >= 3, limit=4)
    assert [one.levels.weights for one in tries] == [0, 27, 13, 6]
    assert best(tries) == Levels(0, 6)
    assert next_levels(27, tries) == Levels(0, 3)


def test_nearest_try_has_the_smallest_loss_then_the_fewest_layers() -> None:
    tries = [Try(Levels(0, 0), math.inf), Try(Levels(1, 2), 0.1), Try(Levels(0, 3), 0.1)]
    assert nearest_try(tries).levels == Levels(0, 3)
    assert nearest_try(tries[:1]).levels == Levels(0, 0)


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


NAMES = ["Conv2d_1/Conv2D", "a.b/c-1", "it's"]


@pytest.mark.parametrize("names", [NAMES[:1], NAMES[1:], NAMES])
def test_expression_matches_only_the_named_layers(names: list[str]) -> None:
    fits = re.compile(layers_expression(names))
    assert all(fits.search(name) for name in names)
    others = [f"x{names[0]}", f"{names[0]}_1", "aXb/c-1", "other"]
    assert not any(fits.search(name) for name in others)


def test_rule_for_transforms_and_recipes() -> None:
    assert rule_text("float", ["a/b"]) == "mode=float nodes=^a/b$"
    read = yaml.safe_load(recipe_rule("weights", NAMES))
    assert read == {"mode": "weights", "nodes": layers_expression(NAMES)}
