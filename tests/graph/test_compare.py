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
    ("other", "told"),
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
def test_a_difference_is_told(other: Graph, told: str) -> None:
    assert [str(d) for d in compare_graphs(graph(), other)] == [told]


def test_a_small_difference_of_a_constant_is_tolerated() -> None:
    assert compare_graphs(graph(), graph(value=1.25), tolerance=0.25) == []
    assert compare_graphs(graph(), graph(value=1.25), tolerance=0.2) != []


def test_nan_equals_itself_and_nothing_else() -> None:
    nan = graph(value=float("nan"))
    assert compare_graphs(nan, graph(value=float("nan"))) == []
    (difference,) = compare_graphs(nan, graph())
    assert difference.as_data()["largest"] is None


def test_constants_of_another_shape_differ() -> None:
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
    ("a", "b", "kind", "told"),
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
def test_constants_of_every_kind_are_compared(
    a: object, b: object, kind: object, told: str
) -> None:
    assert compare_graphs(with_constant(a, kind), with_constant(a, kind)) == []
    (difference,) = compare_graphs(with_constant(a, kind), with_constant(b, kind))
    assert told in str(difference)


@pytest.mark.parametrize("seed", range(8))
def test_the_largest_difference_of_single_precision_is_that_of_double(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for exponent in (-44, -30, -3, 0, 20, 37):
        a = (rng.standard_normal(100) * 10.0**exponent).astype(np.float32)
        b = (a * (1 + rng.standard_normal(100) * 10.0 ** rng.integers(-8, 1))).astype(np.float32)
        largest = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
        found = compare_graphs(with_constant(a, np.float32), with_constant(b, np.float32))
        assert [one.largest for one in found] == ([largest] if (a != b).any() else [])


def test_differences_that_single_precision_cannot_hold_are_told() -> None:
    a, b = (np.array([sign * 3e38, 1], np.float32) for sign in (1, -1))
    (found,) = compare_graphs(with_constant(a, np.float32), with_constant(b, np.float32))
    assert found.largest == 2 * float(np.float32(3e38))


def test_whole_numbers_are_never_tolerated() -> None:
    a, b = (with_constant([n], np.int32) for n in (1, 2))
    assert compare_graphs(a, b, tolerance=5) != []


def test_the_order_of_control_inputs_does_not_count() -> None:
    base = graph().nodes

    def waiting(inputs: str) -> Graph:
        refs = tuple(parse_ref(i) for i in inputs.split())
        return Graph([*base, Node("last", "Relu", refs)])

    assert compare_graphs(waiting("out ^c ^d"), waiting("out:0 ^d ^c")) == []
    assert compare_graphs(waiting("out ^c"), waiting("out ^d")) != []


@pytest.mark.parametrize(
    ("value", "told"),
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
def test_attributes_are_told_in_the_words_of_graphs(value: attr.AttrValue, told: str) -> None:
    a, b = Graph([Node("n", "Op")]), Graph([Node("n", "Op", attrs={"A": value})])
    assert [str(d) for d in compare_graphs(a, b)] == [f"~ n: attribute A: absent became {told}"]
