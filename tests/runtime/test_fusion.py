"""Chains that begin at a convolution are computed together, and give what they gave apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.graphs import c, n, p

RNG = np.random.default_rng(8)
X = RNG.normal(size=(2, 9, 9, 3)).astype(np.float32)
SAME = {"strides": [1, 1, 1, 1], "padding": "SAME"}
# Scaling the filters rather than the result rounds elsewhere.
TOLERANCE = 1e-5


def vector(name: str, low: float = -1, shape: tuple[int, ...] = (4,)) -> Node:
    return c(name, RNG.uniform(low, 2, shape))


def conv(**attrs: Any) -> list[Node]:
    filters = c("w", RNG.normal(size=(3, 3, 3, 4)))
    return [p("x"), filters, n("conv", "Conv2D", "x", "w", **{**SAME, **attrs})]


def padded(widths: list[list[int]], depth: int = 3, **attrs: Any) -> list[Node]:
    """A convolution of the input with zeros around it."""
    return [
        p("x"),
        c("widths", np.array(widths, np.int32)),
        n("pad", "Pad", "x", "widths"),
        c("w", RNG.normal(size=(3, 3, depth, 4))),
        n("conv", "Conv2D", "pad", "w", **{**SAME, "padding": "VALID", **attrs}),
    ]


def depthwise() -> list[Node]:
    filters = c("w", RNG.normal(size=(3, 3, 3, 2)))
    return [p("x"), filters, n("conv", "DepthwiseConv2dNative", "x", "w", **SAME)]


def norm(source: str) -> list[Node]:
    return [
        vector("gamma"),
        vector("beta"),
        vector("mean"),
        vector("variance", low=0.5),
        n(
            "norm",
            "FusedBatchNormV3",
            source,
            "gamma",
            "beta",
            "mean",
            "variance",
            is_training=False,
        ),
    ]


CHAINS = {
    "bias": [*conv(), vector("b"), n("y", "BiasAdd", "conv", "b")],
    "bias and relu": [*conv(), vector("b"), n("a", "BiasAdd", "conv", "b"), n("y", "Relu", "a")],
    "sum on either side": [
        *conv(),
        vector("b"),
        n("a", "AddV2", "b", "conv"),
        n("y", "Relu6", "a"),
    ],
    "scale and shift": [
        *conv(),
        vector("s"),
        vector("b"),
        n("m", "Mul", "conv", "s"),
        n("y", "AddV2", "m", "b"),
    ],
    "shift and scale": [
        *conv(),
        vector("b"),
        vector("s"),
        n("a", "Sub", "conv", "b"),
        n("m", "Mul", "s", "a"),
        n("y", "Relu6", "m"),
    ],
    "scalar": [*conv(), c("s", 0.5), n("y", "Mul", "conv", "s")],
    "four axes": [*conv(), vector("b", shape=(1, 1, 1, 4)), n("y", "Add", "conv", "b")],
    "norm": [*conv(), *norm("conv"), n("y", "Relu", "norm")],
    "residual": [
        *conv(),
        vector("b"),
        c("other", RNG.normal(size=(1, 1, 3, 4))),
        n("branch", "Conv2D", "x", "other", **SAME),
        n("a", "BiasAdd", "conv", "b"),
        n("sum", "AddV2", "a", "branch"),
        n("y", "Relu", "sum"),
    ],
    "padding": [*padded([[0, 0], [1, 2], [0, 3], [0, 0]]), n("y", "Relu", "conv")],
    "padding and more of it": [
        *padded([[0, 0], [2, 1], [0, 0], [0, 0]], **SAME, dilations=[1, 2, 2, 1]),
        vector("b"),
        n("y", "BiasAdd", "conv", "b"),
    ],
    "depthwise": [
        *depthwise(),
        vector("s", shape=(6,)),
        vector("b", shape=(6,)),
        n("m", "Mul", "conv", "s"),
        n("a", "AddV2", "m", "b"),
        n("y", "Relu6", "a"),
    ],
}

# Each breaks a chain; what is computed must not change.
NEAR_MISSES = {
    "padding of the batch": [*padded([[1, 0], [1, 1], [1, 1], [0, 0]]), n("y", "Relu", "conv")],
    "padding of channels": [
        *padded([[0, 0], [0, 0], [0, 0], [1, 0]], depth=4),
        n("y", "Relu", "conv"),
    ],
    "padding that others read": [
        *padded([[0, 0], [1, 1], [1, 1], [0, 0]]),
        c("axes", [1, 2, 3]),
        n("mean", "Mean", "pad", "axes", keep_dims=True),
        n("y", "AddV2", "conv", "mean"),
    ],
    "two readers": [
        *conv(),
        vector("b"),
        n("a", "BiasAdd", "conv", "b"),
        n("y", "Sub", "a", "conv"),
    ],
    "constant on the left of a difference": [*conv(), vector("b"), n("y", "Sub", "b", "conv")],
    "channels first": [
        *conv(),
        c("b", RNG.normal(size=9)),
        n("y", "BiasAdd", "conv", "b", data_format="NCHW"),
    ],
    "not by channel": [*conv(), c("b", RNG.normal(size=(9, 1))), n("y", "Add", "conv", "b")],
    "a sum that broadcasts": [
        *conv(),
        c("axes", [1, 2]),
        n("branch", "Mean", "x", "axes", keep_dims=True),
        c("one", np.ones((3, 4))),
        c("shape", [-1, 3]),
        n("flat", "Reshape", "branch", "shape"),
        n("row", "MatMul", "flat", "one"),
        c("back", [-1, 1, 1, 4]),
        n("small", "Reshape", "row", "back"),
        n("sum", "AddV2", "conv", "small"),
        n("y", "Relu", "sum"),
    ],
    "a sum that grows": [
        p("x"),
        c("w", RNG.normal(size=(9, 9, 3, 4))),
        n("conv", "Conv2D", "x", "w", strides=[1, 1, 1, 1], padding="VALID"),
        c("v", RNG.normal(size=(3, 3, 3, 4))),
        n("branch", "Conv2D", "x", "v", **SAME),
        n("y", "AddV2", "conv", "branch"),
    ],
    "itself": [*conv(), n("y", "AddV2", "conv", "conv")],
    "training": [
        *conv(),
        *norm("conv")[:4],
        n("y", "FusedBatchNormV3", "conv", "gamma", "beta", "mean", "variance", is_training=True),
    ],
    "infinite scale": [*conv(), c("s", [1, np.inf, 1, 1]), n("y", "Mul", "conv", "s")],
    "filters that are computed": [
        p("x"),
        c("axes", [0, 1, 2]),
        n("mean", "Mean", "x", "axes"),
        c("shape", [1, 1, 3, 1]),
        n("w", "Reshape", "mean", "shape"),
        n("conv", "Conv2D", "x", "w", **SAME),
        n("y", "Relu", "conv"),
    ],
}


def both(nodes: list[Node], fetches: list[str]) -> tuple[list[np.ndarray], list[np.ndarray], int]:
    """Results apart, results together, and how many nodes were combined with others."""
    combined = 0

    def observer(members: Any, *rest: Any) -> None:
        nonlocal combined
        combined += len(members) if len(members) > 1 else 0

    graph = Graph(nodes)
    apart = Interpreter(graph, combine=False).run(fetches, {"x": X})
    together = Interpreter(graph, observer=observer).run(fetches, {"x": X})
    return apart, together, combined


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_combined_and_gives_the_same(name: str) -> None:
    (apart,), (together,), combined = both(CHAINS[name], ["y"])
    assert combined >= 2
    np.testing.assert_allclose(together, apart, atol=TOLERANCE * np.abs(apart).max())


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_breaks_a_chain_gives_the_same(name: str) -> None:
    (apart,), (together,), _ = both(NEAR_MISSES[name], ["y"])
    np.testing.assert_allclose(
        together, apart, atol=TOLERANCE * np.nanmax(np.abs(apart[np.isfinite(apart)]))
    )


def test_everything_in_a_chain_can_be_fetched() -> None:
    for fetched in (["conv", "y"], ["a"], ["conv", "a", "y"]):
        apart, together, _ = both(CHAINS["bias and relu"], fetched)
        for ours, expected in zip(together, apart, strict=True):
            np.testing.assert_allclose(ours, expected, atol=TOLERANCE * np.abs(expected).max())


def test_a_chain_ends_before_what_is_fetched() -> None:
    _, _, combined = both(CHAINS["bias and relu"], ["a", "y"])
    assert combined == 2


def test_nan_passes_through_an_activation() -> None:
    graph = Graph(CHAINS["bias and relu"])
    x = X.copy()
    x[0, 4, 4, 0] = np.nan
    out = Interpreter(graph).run(["y"], {"x": x})[0]
    assert np.isnan(out[0, 4, 4]).all()
    assert np.isfinite(out[1]).all()


def test_weights_of_the_graph_are_not_changed() -> None:
    graph = Graph(CHAINS["scale and shift"])
    before = graph["w"].attr_tensor("value").array().copy()
    Interpreter(graph).run(["y"], {"x": X})
    np.testing.assert_array_equal(graph["w"].attr_tensor("value").array(), before)


def test_constants_are_computed_once() -> None:
    graph = Graph([p("x"), c("a", 4.0), n("root", "Sqrt", "a"), n("y", "Mul", "x", "root")])
    seen: list[str] = []
    runner = Interpreter(graph, observer=lambda nodes, *rest: seen.append(nodes[0].name))
    for _ in range(2):
        runner.run(["y"], {"x": X})
    assert seen == ["y", "y"]


def test_a_failure_in_a_chain_names_the_convolution() -> None:
    from mobileprep.errors import InvalidGraphError

    with pytest.raises(InvalidGraphError, match=r"node 'conv' \(Conv2D\).*float32\[2, 9, 9, 2\]"):
        Interpreter(Graph(CHAINS["bias"])).run(["y"], {"x": X[..., :2]})
