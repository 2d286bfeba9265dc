"""clip_weights: a few far elements are cut off, and all others get finer steps."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.graph.graph import Graph
from mobileprep.transforms.rewriting.clipping import best_range, range_with_zero, rounding_error
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, shown

BITS = range(2, 9)
every_bits = pytest.mark.parametrize("bits", BITS)


def far() -> np.ndarray:
    """Weights of which two lie far out."""
    weights = normal(3, 3, 16, 16)
    weights[0, 0, 0, :2] = 25, -9
    return weights


def layer(weights: np.ndarray) -> Graph:
    return Graph([placeholder(), const("w", weights), conv("out", "x w")])


def clipped(weights: np.ndarray, **options) -> np.ndarray:
    return apply("clip_weights", layer(weights), **options).graph["w"].attr_tensor("value").array()


@every_bits
def test_it_loses_less_in_so_many_bits(bits):
    weights = far()
    after = clipped(weights, bits=bits)
    limits = range_with_zero(after)
    whole = rounding_error(weights, range_with_zero(weights), bits)
    # The fewer steps there are, the more it costs to spend them on two elements far out.
    most = {2: 0.5, 3: 0.5, 4: 0.5, 5: 0.75, 6: 0.9}
    assert rounding_error(weights, limits, bits) < whole * most.get(bits, 1)


@every_bits
def test_no_range_of_a_fine_grid_loses_much_less(bits):
    weights = far()
    found = rounding_error(weights, best_range(weights, bits), bits)
    lows, highs = np.linspace(-9, -0.5, 35), np.linspace(0.5, 25, 50)
    least = min(rounding_error(weights, (a, b), bits) for a in lows for b in highs)
    # The search moves one end at a time in steps of a fiftieth.
    assert found < least * 1.02


def test_values_inside_the_range_do_not_change():
    weights = far()
    after = clipped(weights, bits=4)
    inside = (weights > after.min()) & (weights < after.max())
    np.testing.assert_array_equal(after[inside], weights[inside])


@pytest.mark.parametrize("bits", [2, 8])
def test_weights_near_the_largest_floats_are_clipped_as_others(bits):
    weights = far()
    factor = np.float32(2.0**123)
    with np.errstate(over="raise", invalid="raise"):
        after = clipped(weights * factor, bits=bits)
    np.testing.assert_array_equal(after, clipped(weights, bits=bits) * factor)


def test_golden():
    graph = layer(far())
    result = apply("clip_weights", graph, bits=4)
    assert result.matched == 1
    assert shown(result.graph) == shown(graph)


def test_weights_of_few_values_stay():
    graph = layer(np.sign(normal(3, 3, 16, 16)))
    result = apply("clip_weights", graph)
    assert result.graph is graph
    assert result.skipped == {"its whole range loses least": 1}


@pytest.mark.parametrize("value", [0.0, 2.5, -1e-42])
def test_equal_weights_stay(value):
    graph = layer(np.full((3, 3, 16, 16), value, np.float32))
    assert apply("clip_weights", graph).graph is graph


NEAR_MISSES = {
    "small": (layer(normal(3, 3, 4, 4)), "fewer elements than minimum_size"),
    "no layer": (
        Graph([placeholder(), const("w", far()), node("out", "Mul", "x w")]),
        "something else than one kind of layer takes it",
    ),
    "used otherwise too": (
        Graph([*layer(far()), node("more", "Mul", "w w")]),
        "something else than one kind of layer takes it",
    ),
    "infinite": (
        layer(np.where(far() > 20, np.inf, far())),
        "it holds infinity or NaN",
    ),
}


@pytest.mark.parametrize("case", NEAR_MISSES)
def test_near_misses_stay(case):
    graph, reason = NEAR_MISSES[case]
    result = apply("clip_weights", graph)
    assert result.graph is graph
    assert result.skipped == {reason: 1}


def test_weights_that_are_fetched_stay():
    graph = layer(far())
    assert apply("clip_weights", graph, outputs=("w", "out")).graph is graph
