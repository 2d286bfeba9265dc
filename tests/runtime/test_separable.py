"""A depthwise convolution and the one that reads it, together: what they give apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from mobileprep.errors import InvalidGraphError
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.numerics.parallel import all_processors
from mobileprep.ops.context import RunContext
from mobileprep.runtime.convolution_epilogue import FusedConvolution
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.separable import SeparableConvolution
from tests.ops.graphs import c, n, p
from tests.transforms.graphs import conv

RNG = np.random.default_rng(4)
LARGE = RNG.normal(size=(2, 20, 22, 6)).astype(np.float32)
SMALL = LARGE[:1, :9, :9]
SAME = {"strides": [1, 1, 1, 1], "padding": "SAME"}
TOLERANCE = 1e-5


def separable(**attrs: Any) -> list[Node]:
    return [
        p("x"),
        c("own", RNG.normal(size=(3, 3, 6, 2))),
        n("depthwise", "DepthwiseConv2dNative", "x", "own", **SAME),
        c("b", RNG.normal(size=12)),
        n("biased", "BiasAdd", "depthwise", "b"),
        n("active", "Relu6", "biased"),
        c("w", RNG.normal(size=(1, 1, 12, 6))),
        n("pointwise", "Conv2D", "active", "w", **{**SAME, **attrs}),
        c("d", RNG.normal(size=6)),
        n("out", "BiasAdd", "pointwise", "d"),
    ]


def steps_and_results(
    nodes: list[Node], x: np.ndarray, *fetches: str
) -> tuple[list[int], Any, Any]:
    graph, steps = Graph(nodes), []
    apart = Interpreter(graph, combine=False).run(fetches, {"x": x})
    together = Interpreter(graph, observer=lambda covers, *_: steps.append(len(covers)))
    return steps, together.run(fetches, {"x": x}), apart


CASES = {
    "plain": separable(),
    "activated": [*separable(), n("y", "Relu", "out")],
    "with a sum": [*separable(), n("sum", "AddV2", "out", "x"), n("y", "Relu6", "sum")],
}


@pytest.mark.parametrize("x", [LARGE, SMALL], ids=["large", "small"])
@pytest.mark.parametrize("name", CASES)
def test_one_step_gives_the_same(name: str, x: np.ndarray) -> None:
    nodes = CASES[name]
    steps, (ours,), (expected,) = steps_and_results(nodes, x, nodes[-1].name)
    assert len(steps) == 1
    np.testing.assert_allclose(ours, expected, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize(
    ("nodes", "fetches"),
    [
        (separable(strides=[1, 2, 2, 1]), ["out"]),
        (separable(), ["out", "active"]),
        (separable()[:6], ["active"]),
    ],
    ids=["strides", "fetched", "alone"],
)
def test_what_is_no_such_pair_gives_the_same(nodes: list[Node], fetches: list[str]) -> None:
    _, ours, expected = steps_and_results(nodes, LARGE, *fetches)
    for found, wanted in zip(ours, expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=TOLERANCE * np.abs(wanted).max())


def test_a_sum_that_broadcasts() -> None:
    nodes = [
        *separable(),
        c("axes", [1, 2]),
        n("mean", "Mean", "x", "axes", keep_dims=True),
        n("y", "AddV2", "out", "mean"),
    ]
    _, (ours,), (expected,) = steps_and_results(nodes, LARGE, "y")
    np.testing.assert_allclose(ours, expected, atol=TOLERANCE * np.abs(expected).max())


def test_the_number_of_threads_changes_no_bit() -> None:
    x = RNG.normal(size=(1, 96, 96, 40)).astype(np.float32)
    parts = [
        FusedConvolution.prepared(conv(op, "x w", op), filters, np.ones(40), np.ones(40), "Relu")
        for op, filters in (
            ("DepthwiseConv2dNative", RNG.normal(size=(3, 3, 40, 1)).astype(np.float32)),
            ("Conv2D", RNG.normal(size=(1, 1, 40, 40)).astype(np.float32)),
        )
    ]
    run = SeparableConvolution(*parts)
    with threadpool_limits(1):
        (alone,) = run(RunContext(), (x,))
    with all_processors():
        (shared,) = run(RunContext(), (x,))
    assert shared.tobytes() == alone.tobytes()


def test_a_failure_names_a_node_and_its_input() -> None:
    with pytest.raises(InvalidGraphError, match=r"'depthwise'.*float32\[2, 20, 22, 5\]"):
        Interpreter(Graph(separable())).run(["out"], {"x": LARGE[..., :5]})
