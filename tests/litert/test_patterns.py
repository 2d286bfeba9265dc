"""Patterns of operators that become one builtin, and near misses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.litert.graphs import codes, const, feed, model, op
from tests.litert.one_op import check_graph, numbers, run_both

STRIDES = [1, 2, 2, 1]


def converted(nodes: list[Node], shape: tuple[int, ...], outputs: tuple[str, ...] = ("y",)) -> Any:
    """Check the results of a graph, and return its operators."""
    graph = Graph([feed("x", shape), *nodes])
    return codes(check_graph(graph, {"x": numbers(*shape) * 3}, outputs))


def swish(three: float, sixth: float, kind: str = "Mul") -> list[Node]:
    return [
        const("three", three),
        op("more", "AddV2", ["x", "three"]),
        op("clipped", "Relu6", ["more"]),
        const("sixth", sixth),
        op("part", kind, ["clipped", "sixth"]),
        op("y", "Mul", ["x", "part"]),
    ]


@pytest.mark.parametrize(("number", "kind"), [(1 / 6, "Mul"), (6.0, "RealDiv")])
def test_hard_swish(number: float, kind: str) -> None:
    assert converted(swish(3.0, number, kind), (2, 5)) == ["HARD_SWISH"]


def test_hard_swish_with_division_last() -> None:
    nodes = swish(3.0, 1 / 6)[:3]
    nodes += [
        op("whole", "Mul", ["x", "clipped"]),
        const("s", 1 / 6),
        op("y", "Mul", ["whole", "s"]),
    ]
    assert converted(nodes, (2, 5)) == ["HARD_SWISH"]


@pytest.mark.parametrize(("three", "sixth"), [(2.0, 1 / 6), (3.0, 1 / 5)])
def test_near_miss_of_hard_swish_is_kept(three: float, sixth: float) -> None:
    assert "HARD_SWISH" not in converted(swish(three, sixth), (2, 5))


def test_fetched_value_inside_a_pattern_is_kept() -> None:
    operators = converted(swish(3.0, 1 / 6), (2, 5), ("y", "clipped"))
    assert "HARD_SWISH" in operators
    assert "ADD" in operators


@pytest.mark.parametrize("slope", [(1, 1, 3), (3,), (1, 4, 3), (1, 1, 1, 3)])
@pytest.mark.parametrize("kind", ["AddV2", "Sub"])
def test_prelu(slope: tuple[int, ...], kind: str) -> None:
    sign = -1 if kind == "AddV2" else 1
    nodes = [
        op("above", "Relu", ["x"]),
        op("negated", "Neg", ["x"]),
        op("below", "Relu", ["negated"]),
        const("slope", sign * abs(numbers(*slope))),
        op("scaled", "Mul", ["slope", "below"]),
        op("y", kind, ["above", "scaled"]),
    ]
    assert converted(nodes, (2, 5, 4, 3)) == ["PRELU"]


@pytest.mark.parametrize("square", ["Square", "Mul"])
def test_l2_normalization(square: str) -> None:
    nodes = [
        op("squares", square, ["x"] * (1 if square == "Square" else 2)),
        const("axis", [-1]),
        op("sum", "Sum", ["squares", "axis"], keep_dims=True),
        const("least", 1e-12),
        op("some", "Maximum", ["sum", "least"]),
        op("root", "Rsqrt", ["some"]),
        op("y", "Mul", ["x", "root"]),
    ]
    assert converted(nodes, (2, 5, 7)) == ["L2_NORMALIZATION"]


def padded_conv(pads: list[list[int]]) -> list[Node]:
    return [
        const("pads", pads),
        op("padded", "Pad", ["x", "pads"]),
        const("w", numbers(3, 3, 2, 4)),
        op("y", "Conv2D", ["padded", "w"], strides=STRIDES, padding="VALID"),
    ]


def test_padding_that_equals_same_is_fused() -> None:
    pads = [[0, 0], [0, 1], [0, 1], [0, 0]]
    assert converted(padded_conv(pads), (1, 8, 6, 2)) == ["CONV_2D"]


def test_padding_on_the_other_side_is_kept() -> None:
    pads = [[0, 0], [1, 0], [1, 0], [0, 0]]
    assert converted(padded_conv(pads), (1, 8, 6, 2)) == ["PAD", "CONV_2D"]


def channels_first() -> list[Node]:
    """Convolutions, a bias, an activation, pooling, and a sum, all with channels first."""
    layout: dict[str, Any] = {"data_format": "NCHW", "padding": "SAME"}
    ones = [1, 1, 1, 1]
    return [
        const("w1", numbers(3, 3, 2, 4)),
        op("c1", "Conv2D", ["x", "w1"], strides=[1, 1, 2, 2], **layout),
        const("b1", numbers(4, seed=5)),
        op("b", "BiasAdd", ["c1", "b1"], data_format="NCHW"),
        op("r", "Relu", ["b"]),
        const("w2", numbers(3, 3, 4, 4, seed=6)),
        op("c2", "Conv2D", ["r", "w2"], strides=ones, **layout),
        op("s", "AddV2", ["c2", "r"]),
        op("p", "MaxPool", ["s"], ksize=[1, 1, 2, 2], strides=[1, 1, 2, 2], **layout),
        const("axis", 1),
        op("y", "ConcatV2", ["p", "p", "axis"]),
    ]


def test_transposes_remain_only_at_the_ends() -> None:
    graph = Graph([feed("x", (1, 2, 8, 8)), *channels_first()])
    operators = codes(model(graph, ["x"], ["y"]))
    assert operators == [
        "TRANSPOSE",
        "CONV_2D",
        "CONV_2D",
        "ADD",
        "MAX_POOL_2D",
        "CONCATENATION",
        "TRANSPOSE",
    ]


def test_channels_first_results_match() -> None:
    """Our kernels compute these convolutions with the channels last."""
    graph = Graph([feed("x", (1, 2, 8, 8)), *channels_first()])
    feeds = {"x": numbers(1, 2, 8, 8)}
    result, reference = run_both(model(graph, ["x"], ["y"]), graph, feeds)
    np.testing.assert_allclose(result, reference, atol=1e-5)


def halves(inner: list[Node], last: str) -> list[Node]:
    """Compute x / 2 * (1 + last)."""
    return [
        *inner,
        const("one", 1.0),
        op("more", "AddV2", ["one", last]),
        const("half", 0.5),
        op("part", "Mul", ["half", "x"]),
        op("y", "Mul", ["part", "more"]),
    ]


@pytest.mark.parametrize("kind", ["Mul", "RealDiv"])
def test_gelu(kind: str) -> None:
    number = 2**-0.5 if kind == "Mul" else 2**0.5
    inner = [
        const("root", number),
        op("scaled", kind, ["x", "root"]),
        op("curve", "Erf", ["scaled"]),
    ]
    assert converted(halves(inner, "curve"), (2, 50)) == ["GELU"]


def test_gelu_with_half_in_the_curve() -> None:
    nodes = [
        const("root", 2**-0.5),
        op("scaled", "Mul", ["root", "x"]),
        op("curve", "Erf", ["scaled"]),
        const("one", 1.0),
        op("more", "AddV2", ["curve", "one"]),
        const("half", 0.5),
        op("cdf", "Mul", ["more", "half"]),
        op("y", "Mul", ["x", "cdf"]),
    ]
    assert converted(nodes, (2, 50)) == ["GELU"]


@pytest.mark.parametrize("negated", ["x", "root"])
def test_gelu_with_erfc(negated: str) -> None:
    """Newer releases of TensorFlow write this form."""
    nodes = [
        const("half", 0.5),
        op("part", "Mul", ["half", "x"]),
        op("minus", "Neg", ["x"]),
        const("root", 2**-0.5 if negated == "x" else -(2**-0.5)),
        op("scaled", "Mul", ["minus" if negated == "x" else "x", "root"]),
        op("rest", "Erfc", ["scaled"]),
        op("y", "Mul", ["part", "rest"]),
    ]
    assert converted(nodes, (2, 50)) == ["GELU"]


def test_erfc_of_the_other_sign_is_not_gelu() -> None:
    nodes = [
        const("half", 0.5),
        op("part", "Mul", ["half", "x"]),
        const("root", 2**-0.5),
        op("scaled", "Mul", ["x", "root"]),
        op("rest", "Erfc", ["scaled"]),
        op("y", "Mul", ["part", "rest"]),
    ]
    assert "GELU" not in converted(nodes, (2, 50))


CUBES = {
    "Pow": [const("three", 3.0), op("cube", "Pow", ["x", "three"])],
    "Mul": [op("square", "Mul", ["x", "x"]), op("cube", "Mul", ["x", "square"])],
    "Square": [op("square", "Square", ["x"]), op("cube", "Mul", ["square", "x"])],
}


def tangent(cube: list[Node], small: float = 0.044715) -> list[Node]:
    inner = [
        *cube,
        const("small", small),
        op("bent", "Mul", ["small", "cube"]),
        op("total", "AddV2", ["x", "bent"]),
        const("root", (2 / np.pi) ** 0.5),
        op("scaled", "Mul", ["root", "total"]),
        op("curve", "Tanh", ["scaled"]),
    ]
    return halves(inner, "curve")


@pytest.mark.parametrize("cube", CUBES)
def test_gelu_with_tanh(cube: str) -> None:
    assert converted(tangent(CUBES[cube]), (2, 50)) == ["GELU"]


def test_gelu_with_factored_tanh() -> None:
    inner = [
        op("square", "Mul", ["x", "x"]),
        const("small", 0.044715),
        op("bent", "Mul", ["square", "small"]),
        const("whole", 1.0),
        op("total", "AddV2", ["bent", "whole"]),
        const("root", (2 / np.pi) ** 0.5),
        op("long", "Mul", ["x", "root"]),
        op("scaled", "Mul", ["long", "total"]),
        op("curve", "Tanh", ["scaled"]),
    ]
    assert converted(halves(inner, "curve"), (2, 50)) == ["GELU"]


def test_near_miss_of_gelu_is_kept() -> None:
    assert "GELU" not in converted(tangent(CUBES["Mul"], 0.05), (2, 50))
    inner = [const("root", 0.7), op("scaled", "Mul", ["x", "root"]), op("curve", "Erf", ["scaled"])]
    assert "GELU" not in converted(halves(inner, "curve"), (2, 50))


@pytest.mark.parametrize("order", [("Maximum", "Minimum"), ("Minimum", "Maximum")])
@pytest.mark.parametrize(
    ("low", "high", "code"), [(-1.0, 1.0, "RELU_N1_TO_1"), (0.0, 6.0, "RELU6"), (-1.0, 2.0, None)]
)
def test_ranges(order: tuple[str, str], low: float, high: float, code: str | None) -> None:
    limits = {"Maximum": low, "Minimum": high}
    nodes = [
        const("first", limits[order[0]]),
        const("second", limits[order[1]]),
        op("inner", order[0], ["x", "first"]),
        op("y", order[1], ["second", "inner"]),
    ]
    operators = converted(nodes, (3, 7))
    assert operators == ([code] if code else [kind.upper() for kind in order])


def test_minimum_of_relu_and_6_is_relu6() -> None:
    nodes = [op("above", "Relu", ["x"]), const("six", 6.0), op("y", "Minimum", ["above", "six"])]
    assert converted(nodes, (3, 7)) == ["RELU6"]


def test_clip_after_relu_is_relu6() -> None:
    nodes = [
        op("above", "Relu", ["x"]),
        const("six", 6.0),
        const("zero", 0.0),
        op("inner", "Minimum", ["above", "six"]),
        op("y", "Maximum", ["inner", "zero"]),
    ]
    assert converted(nodes, (3, 7)) == ["RELU6"]


def test_long_chain_of_products_is_converted() -> None:
    nodes = [op("m0", "Mul", ["x", "x"])]
    nodes += [op(f"m{i}", "Mul", [f"m{i - 1}", "x"]) for i in range(1, 3000)]
    graph = Graph([feed("x", (2,)), *nodes])
    assert codes(model(graph, ["x"], ["m2999"])) == ["MUL"] * 3000
