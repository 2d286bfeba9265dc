"""Comparing graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.compare import compare_graphs
from mobileprep.graph.graph import Graph, Versions
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Tensor


def graph(*, value: float = 1.0, op: str = "Relu", source: str = "c", device: str = "") -> Graph:
    values = np.array([value, 2.0], np.float32)
    return Graph(
        [
            constant("c", Tensor.of(values)),
            constant("d", Tensor.of(np.float32(3))),
            Node("out", op, (parse_ref(source),), device, {"N": attr.integer(1)}),
        ]
    )


def test_equal_graphs_have_no_differences() -> None:
    assert compare_graphs(graph(), graph()) == []


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (graph(op="Elu"), "~ out: op: Relu became Elu"),
        (graph(source="d"), "~ out: inputs: c became d"),
        (graph(device="/cpu:0"), "~ out: device: none became /cpu:0"),
        (
            graph(value=1.5),
            (
                "~ c: constant value: Tensor(float32, [2]) became other in 1 of 2 elements, "
                "largest difference 0.5"
            ),
        ),
        (Graph(graph().nodes[:2]), "- out (Relu)"),
        (Graph([*graph().nodes, Node("new", "NoOp")]), "+ new (NoOp)"),
        (
            Graph([*graph().nodes[:2], graph().nodes[2].with_attrs(N=attr.integer(2))]),
            "~ out: attribute N: 1 became 2",
        ),
        (
            Graph(graph().nodes, versions=Versions(27)),
            "~ versions: producer 0, at least 0 became producer 27, at least 0",
        ),
    ],
)
def test_difference_is_reported(other: Graph, message: str) -> None:
    assert [str(d) for d in compare_graphs(graph(), other)] == [message]


def test_difference_within_the_tolerance_is_ignored() -> None:
    assert compare_graphs(graph(), graph(value=1.25), tolerance=0.25) == []
    assert compare_graphs(graph(), graph(value=1.25), tolerance=0.2) != []


def test_nan_equals_only_nan() -> None:
    nan = graph(value=float("nan"))
    assert compare_graphs(nan, graph(value=float("nan"))) == []
    (difference,) = compare_graphs(nan, graph())
    assert difference.as_data()["largest"] is None


def test_constants_of_different_shapes_differ() -> None:
    a = Graph([constant("c", Tensor.of(np.zeros((2, 1), np.float32)))])
    b = Graph([constant("c", Tensor.of(np.zeros(2, np.float32)))])
    (difference,) = compare_graphs(a, b)
    assert (difference.before, difference.after) == (
        "Tensor(float32, [2, 1])",
        "Tensor(float32, [2])",
    )


def with_constant(values: Any, kind: Any) -> Graph:
    return Graph([constant("c", Tensor.of(np.asarray(values, kind)))])


@pytest.mark.parametrize(
    ("a", "b", "kind", "message"),
    [
        ([2**60, 1], [2**60 + 1, 1], np.int64, "1 of 2 elements, largest difference "),
        ([b"a", b"b"], [b"a", b"c"], object, "other in 1 of 2 elements"),
        ([1e300, 1], [2e300, 1], np.float64, "1 of 2 elements, largest difference 1e+300"),
        ([np.inf, 1], [0, 1], np.float32, "1 of 2 elements, largest difference inf"),
        ([np.nan, 1], [0, 1], np.float32, "1 of 2 elements, not numbers on one side only"),
        ([1j, 1], [2j, 1], np.complex64, "1 of 2 elements, largest difference 1"),
        ([True, False], [True, True], bool, "1 of 2 elements, largest difference 1"),
    ],
)
def test_constants_of_every_type_are_compared(
    a: object, b: object, kind: object, message: str
) -> None:
    assert compare_graphs(with_constant(a, kind), with_constant(a, kind)) == []
    (difference,) = compare_graphs(with_constant(a, kind), with_constant(b, kind))
    assert message in str(difference)


@pytest.mark.parametrize("seed", range(8))
def test_float32_differences_are_computed_in_float64(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for exponent in (-44, -30, -3, 0, 20, 37):
        a = (rng.standard_normal(100) * 10.0**exponent).astype(np.float32)
        b = (a * (1 + rng.standard_normal(100) * 10.0 ** rng.integers(-8, 1))).astype(np.float32)
        largest = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
        differences = compare_graphs(with_constant(a, np.float32), with_constant(b, np.float32))
        assert [d.largest for d in differences] == ([largest] if (a != b).any() else [])


def test_difference_beyond_the_float32_range_is_reported() -> None:
    a, b = (np.array([sign * 3e38, 1], np.float32) for sign in (1, -1))
    (difference,) = compare_graphs(with_constant(a, np.float32), with_constant(b, np.float32))
    assert difference.largest == 2 * float(np.float32(3e38))


def test_tolerance_does_not_apply_to_integers() -> None:
    a, b = (with_constant([n], np.int32) for n in (1, 2))
    assert compare_graphs(a, b, tolerance=5) != []


def test_order_of_control_inputs_is_ignored() -> None:
    base = graph().nodes

    def with_last_node(inputs: str) -> Graph:
        refs = tuple(parse_ref(i) for i in inputs.split())
        return Graph([*base, Node("last", "Relu", refs)])

    assert compare_graphs(with_last_node("out ^c ^d"), with_last_node("out:0 ^d ^c")) == []
    assert compare_graphs(with_last_node("out ^c"), with_last_node("out ^d")) != []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (attr.dtype(DType.QUINT8), "quint8"),
        (attr.string("SAME"), "SAME"),
        (attr.boolean(True), "true"),
        (attr.shape(None), "unknown"),
        (attr.shape((2, -1)), "[2, -1]"),
        (attr.AttrValue("list(type)", (DType.FLOAT, DType.INT32)), "[float32, int32]"),
        (attr.AttrValue("func", attr.FuncRef("twice")), "twice"),
    ],
)
def test_attribute_values_are_formatted_as_in_graph_text(value: attr.AttrValue, text: str) -> None:
    a, b = Graph([Node("n", "Op")]), Graph([Node("n", "Op", attrs={"A": value})])
    assert [str(d) for d in compare_graphs(a, b)] == [f"~ n: attribute A: absent became {text}"]
