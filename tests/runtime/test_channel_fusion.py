"""Arithmetic by channel is computed together, and gives the very bits that it gave apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.runtime import channel_fusion
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.graphs import c, n, p

RNG = np.random.default_rng(8)
CHANNELS = 5
# More than one block, the last of them not full.
X = RNG.normal(size=(2, 97, 401, CHANNELS)).astype(np.float32)


def vector(name: str, low: float = -1, shape: tuple[int, ...] = (CHANNELS,)) -> Node:
    return c(name, RNG.uniform(low, 2, shape))


STATISTICS = [vector("gamma"), vector("beta"), vector("mean"), vector("variance", low=0.5)]


def norm(**attrs: Any) -> list[Node]:
    given = ("x", "gamma", "beta", "mean", "variance")
    made = n("norm", "FusedBatchNormV3", *given, **{"is_training": False, **attrs})
    return [p("x"), *STATISTICS, made]


CHAINS = {
    "scale, shift and activation": [
        p("x"),
        vector("s"),
        vector("b"),
        n("m", "Mul", "s", "x"),
        n("a", "AddV2", "m", "b"),
        n("y", "Relu", "a"),
    ],
    "a difference and a number for all": [
        p("x"),
        vector("b", shape=(1, 1, 1, CHANNELS)),
        c("s", 0.5),
        n("a", "Sub", "x", "b"),
        n("y", "Mul", "a", "s"),
    ],
    "bias and activation": [
        p("x"),
        vector("b"),
        n("a", "BiasAdd", "x", "b"),
        n("y", "Relu6", "a"),
    ],
    "norm": [*norm(), n("y", "Relu", "norm")],
}

NEAR_MISSES = {
    "an activation alone": [p("x"), n("y", "Relu", "x")],
    "one number for all": [
        p("x"),
        c("s", 0.5),
        n("m", "Mul", "x", "s"),
        n("y", "AddV2", "m", "s"),
    ],
    "two readers": [
        p("x"),
        vector("s"),
        n("m", "Mul", "x", "s"),
        n("a", "AddV2", "m", "s"),
        n("y", "Sub", "a", "m"),
    ],
    "a constant less the tensor": [
        p("x"),
        vector("b"),
        n("d", "Sub", "b", "x"),
        n("y", "Relu", "d"),
    ],
    "channels first": [
        p("x"),
        c("b", RNG.normal(size=97)),
        n("a", "BiasAdd", "x", "b", data_format="NCHW"),
        n("y", "Relu", "a"),
    ],
    "training": [*norm(is_training=True), n("y", "Relu", "norm")],
    "sums with themselves": [p("x"), n("d", "AddV2", "x", "x"), n("y", "Relu", "d")],
}


def both(nodes: list[Node], x: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Results apart and together, and how many nodes were combined with others."""
    combined = 0

    def observer(members: Any, *rest: Any) -> None:
        nonlocal combined
        combined += len(members) if len(members) > 1 else 0

    (apart,) = Interpreter(Graph(nodes), combine=False).run(["y"], {"x": x})
    (together,) = Interpreter(Graph(nodes), observer=observer).run(["y"], {"x": x})
    return apart, together, combined


@pytest.mark.parametrize("rows", [97, 3], ids=["many blocks", "one"])
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_combined_and_gives_the_same_bits(name: str, rows: int) -> None:
    x = X[:, :rows]
    before = x.copy()
    apart, together, combined = both(CHAINS[name], x)
    assert combined >= 2
    np.testing.assert_array_equal(together, apart)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_breaks_a_chain_gives_the_same(name: str) -> None:
    apart, together, combined = both(NEAR_MISSES[name], X)
    assert combined == 0
    np.testing.assert_array_equal(together, apart)


@pytest.mark.parametrize("shape", [(0, CHANNELS), (3, 1), (2, 2, 1)], ids=["none", "one", "three"])
def test_other_shapes_give_what_the_nodes_give(shape: tuple[int, ...]) -> None:
    apart, together, _ = both(CHAINS["scale, shift and activation"], np.ones(shape, np.float32))
    assert together.shape == (*shape[:-1], CHANNELS)
    np.testing.assert_array_equal(together, apart)


def test_a_constant_may_add_an_axis() -> None:
    x = np.ones((2, CHANNELS), np.float32)
    apart, together, _ = both(CHAINS["a difference and a number for all"], x)
    assert together.shape == (1, 1, 2, CHANNELS)
    np.testing.assert_array_equal(together, apart)


def test_nan_passes_through_and_infinities_are_held() -> None:
    x = np.array([[np.nan, np.inf, -np.inf, 0, 1]], np.float32)
    apart, together, _ = both(CHAINS["bias and activation"], x)
    np.testing.assert_array_equal(together, apart)
    assert np.isnan(together[0, 0])


def test_a_shape_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="node 'a'"):
        Interpreter(Graph(CHAINS["bias and activation"])).run(["y"], {"x": X[..., :3]})


@pytest.mark.parametrize("end", [[], [n("y", "Relu", "m299")]], ids=["open", "closed"])
def test_a_long_chain_of_single_numbers_is_looked_at_once(
    monkeypatch: pytest.MonkeyPatch, end: list[Node]
) -> None:
    nodes = [p("x"), c("s", 2.0), n("m0", "Mul", "x", "s")]
    nodes += [n(f"m{i}", "Mul", f"m{i - 1}", "s") for i in range(1, 300)]
    looked_at = []
    extend = channel_fusion._extend
    monkeypatch.setattr(
        channel_fusion, "_extend", lambda *args: looked_at.append(args) or extend(*args)
    )
    fetch = end[-1].name if end else "m299"
    with np.errstate(over="ignore"):
        Interpreter(Graph([*nodes, *end])).run([fetch], {"x": X})
    assert len(looked_at) <= 2 * len(nodes)
