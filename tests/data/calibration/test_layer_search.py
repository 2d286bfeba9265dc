"""The search for the layers to keep in float."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from mobileprep.data.calibration.layers import Levels, Try, best_try, nearest_try, next_levels

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
