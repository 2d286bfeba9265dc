"""Convolutions of single elements of one tensor, done together, give what they gave apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from mobileprep.errors import InvalidGraphError
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.graphs import c, n, p

RNG = np.random.default_rng(9)
X = RNG.normal(size=(2, 9, 8, 12)).astype(np.float32)
SAME = {"strides": [1, 1, 1, 1], "padding": "SAME"}
TOLERANCE = 1e-5


def branch(name: str, count: int, source: str = "x", op: str = "Relu", **attrs: Any) -> list[Node]:
    """A convolution of single elements with bias and activation."""
    return [
        c(f"{name}/w", RNG.normal(size=(1, 1, 12, count))),
        c(f"{name}/b", RNG.normal(size=count)),
        n(f"{name}/conv", "Conv2D", source, f"{name}/w", **{**SAME, **attrs}),
        n(f"{name}/sum", "BiasAdd", f"{name}/conv", f"{name}/b"),
        n(name, op, f"{name}/sum"),
    ]


def pool(name: str, source: str = "x", **attrs: Any) -> Node:
    return n(name, "AvgPool", source, ksize=[1, 3, 3, 1], **{**SAME, **attrs})


def joined(*names: str) -> list[Node]:
    return [c("axis", np.array(3, np.int32)), n("y", "ConcatV2", *names, "axis", N=len(names))]


def run(
    nodes: list[Node], *fetches: str, x: np.ndarray = X
) -> tuple[list[set[str]], list[np.ndarray], list[np.ndarray]]:
    """The nodes of each step, the results, and those of each node by itself."""
    graph, steps = Graph(nodes), []
    apart = Interpreter(graph, combine=False).run(fetches, {"x": x})

    def observe(covers: Any, *_: Any) -> None:
        steps.append({node.name for node in covers})

    together = Interpreter(graph, observer=observe).run(fetches, {"x": x})
    return steps, together, apart


def near(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE * np.abs(theirs).max())


def test_they_are_one_step() -> None:
    nodes = [p("x"), *branch("a", 5), *branch("b", 7), *branch("c", 3), *joined("a", "b", "c")]
    steps, ours, expected = run(nodes, "y")
    assert [len(step) for step in steps] == [9, 1]
    near(ours, expected)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_pooling_comes_after_the_convolution_that_alone_reads_it(padding: str) -> None:
    pooled = [pool("means", padding=padding), *branch("b", 4, "means", "Relu6")]
    reader = [c("axes", [1, 2]), n("z", "Mean", "b", "axes")]
    nodes = [p("x"), *pooled, *branch("a", 5), n("y", "Neg", "a"), *reader]
    steps, ours, expected = run(nodes, "y", "z")
    assert {"means", "b", "a"} < steps[0]
    near(ours, expected)


OTHERS = {
    "another activation": [*branch("a", 5), *branch("b", 4, op="Relu6")],
    "strides": [*branch("a", 5, strides=[1, 2, 2, 1]), *branch("b", 4, strides=[1, 2, 2, 1])],
    "another tensor": [*branch("a", 5), n("other", "Neg", "x"), *branch("b", 4, "other")],
    "more channels than are pooled": [*branch("a", 5), pool("m"), *branch("b", 13, "m")],
    "pools that step": [*branch("a", 5), pool("m", strides=[1, 2, 2, 1]), *branch("b", 4, "m")],
    "pools alone": [pool("l"), *branch("a", 5, "l"), pool("m"), *branch("b", 4, "m")],
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay_apart(name: str) -> None:
    nodes = [p("x"), *OTHERS[name], n("y", "Neg", "a"), n("z", "Neg", "b")]
    steps, ours, expected = run(nodes, "y", "z")
    assert not any({"a", "b"} <= step for step in steps)
    near(ours, expected)


def test_a_pool_that_others_read_stays_apart() -> None:
    nodes = [p("x"), *branch("a", 5), pool("m"), *branch("b", 4, "m"), *joined("a", "b", "m")]
    steps, ours, expected = run(nodes, "y")
    assert {"m"} in steps
    near(ours, expected)


def test_what_is_fetched_is_an_array_of_its_own() -> None:
    nodes = [p("x"), *branch("a", 5), *branch("b", 4), *branch("c", 3), *joined("b", "c")]
    steps, ours, expected = run(nodes, "a", "y")
    assert not any({"a", "b"} <= step for step in steps)
    assert any({"b", "c"} <= step for step in steps)
    assert ours[0].flags.c_contiguous
    near(ours, expected)


def test_a_sum_with_another_tensor_stays_with_its_convolution() -> None:
    summed = [*branch("a", 12)[:-1], n("a", "AddV2", "a/sum", "x")]
    nodes = [p("x"), *summed, *branch("b", 12), n("y", "Mul", "a", "b")]
    steps, ours, expected = run(nodes, "y")
    assert not any({"a", "b"} <= step for step in steps)
    near(ours, expected)


def test_the_number_of_threads_changes_no_bit() -> None:
    x = RNG.normal(size=(1, 64, 64, 12)).astype(np.float32)
    means = [pool("m"), *branch("c", 11, "m")]
    nodes = [p("x"), *branch("a", 300), *branch("b", 7), *means, *joined("a", "b", "c")]
    graph = Graph(nodes)
    (shared,) = Interpreter(graph).run(["y"], {"x": x})
    with threadpool_limits(1):
        (alone,) = Interpreter(graph).run(["y"], {"x": x})
    assert shared.tobytes() == alone.tobytes()


def test_an_infinity_stays_where_the_windows_meet_it() -> None:
    x = X.copy()
    x[0, 4, 4, 3] = np.inf
    nodes = [p("x"), *branch("a", 5), pool("m"), *branch("b", 4, "m"), *joined("a", "b")]
    _, (ours,), (expected,) = run(nodes, "y", x=x)
    np.testing.assert_array_equal(np.isfinite(ours), np.isfinite(expected))
    there = np.isfinite(expected)
    np.testing.assert_allclose(ours[there], expected[there], atol=1e-4)


def test_a_tensor_that_does_not_fit_is_told_with_a_node_that_reads_it() -> None:
    nodes = [p("x"), *branch("a", 5), *branch("b", 7), *joined("a", "b")]
    with pytest.raises(InvalidGraphError, match=r"'a/conv'.*float32\[2, 9, 8, 5\]"):
        Interpreter(Graph(nodes)).run(["y"], {"x": X[..., :5]})
