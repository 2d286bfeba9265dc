"""remove_dropout: the forms that dropout has had in graphs."""

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, node, normal, placeholder, run, shown

RANDOM = (
    const("shape", [2, 3], np.int32),
    node("random", "RandomUniform", "shape", T=DType.INT32, dtype=DType.FLOAT),
)
AT_LEAST_RATE = (const("rate", 0.25), node("kept", "GreaterEqual", "random rate"))
TO_NUMBER = node("mask", "Cast", "kept", T=None, SrcT=DType.BOOL, DstT=DType.FLOAT)


def _graph(*nodes):
    return Graph([placeholder(), node("before", "Neg", "x"), *RANDOM, *nodes])


def _with_floor(keep="keep", scaled=None):
    """The form of TensorFlow 1.0 to 1.12."""
    return _graph(
        const("keep", 0.75),
        const("min", 0.0),
        const("max", 1.0),
        node("range", "Sub", "max min"),
        node("stretched", "Mul", "random range"),
        node("uniform", "Add", "stretched min"),
        node("sum", "Add", "keep uniform"),
        node("mask", "Floor", "sum"),
        scaled or node("scaled", "RealDiv", f"before {keep}"),
        node("dropped", "Mul", "scaled mask"),
        node("out", "Relu", "dropped"),
    )


def _with_cast(scale=4 / 3):
    """The form of TensorFlow 1.13 to 2.9."""
    return _graph(
        *AT_LEAST_RATE,
        TO_NUMBER,
        const("scale", scale),
        node("scaled", "Mul", "before scale"),
        node("dropped", "Mul", "scaled mask"),
        node("out", "Relu", "dropped"),
    )


def _with_select(op="SelectV2", otherwise=0.0):
    """The form since TensorFlow 2.10."""
    return _graph(
        *AT_LEAST_RATE,
        const("scale", 4 / 3),
        node("scaled", "Mul", "before scale"),
        const("otherwise", otherwise),
        node("dropped", op, "kept scaled otherwise"),
        node("out", "Relu", "dropped"),
    )


def _with_a_fed_rate():
    return _graph(
        placeholder("rate"),
        const("one", 1.0),
        node("keep", "Sub", "one rate"),
        node("scale", "RealDiv", "one keep"),
        node("kept", "GreaterEqual", "random rate"),
        TO_NUMBER,
        node("scaled", "Mul", "before scale"),
        node("dropped", "Mul", "scaled mask"),
        node("out", "Relu", "dropped"),
    )


def _with_a_fed_share():
    return _graph(
        placeholder("keep"),
        node("sum", "AddV2", "random keep"),
        node("mask", "Floor", "sum"),
        node("scaled", "RealDiv", "before keep"),
        node("dropped", "Mul", "mask scaled"),
        node("out", "Relu", "dropped"),
    )


@pytest.mark.parametrize(
    "graph",
    [
        _with_floor(),
        _with_cast(),
        _with_select(),
        _with_select("Select"),
        _with_a_fed_rate(),
        _with_a_fed_share(),
    ],
    ids=["floor", "cast", "select", "old select", "fed rate", "fed share"],
)
def test_golden(graph):
    result = apply("remove_dropout", graph)
    assert result.matched == 1
    assert shown(result.graph) == (
        "x = Placeholder()\nbefore = Neg(x) T=float32\nout = Relu(before) T=float32"
    )


def test_remaining_tensor_is_the_input():
    x = normal(2, 3)
    after = apply("remove_dropout", _with_cast()).graph
    np.testing.assert_array_equal(run(after, x), np.maximum(-x, 0))


@pytest.mark.parametrize(
    "graph",
    [
        _with_cast(scale=2),
        _with_floor(keep="range"),
        _with_floor(scaled=node("scaled", "Relu", "before")),
        _with_floor(scaled=node("scaled", "Sub", "before keep")),
    ],
    ids=["other factor", "other divisor", "no scale", "other op"],
)
def test_other_scale_is_skipped_with_a_reason(graph):
    result = apply("remove_dropout", graph)
    assert result.graph is graph
    assert result.skipped == {"kept values are not scaled up by the share of dropped ones": 1}


def test_selection_of_nonzero_values_is_not_dropout():
    graph = _with_select(otherwise=1.0)
    result = apply("remove_dropout", graph)
    assert result.graph is graph
    assert not result.skipped


def test_constant_mask_is_not_dropout():
    nodes = [n for n in _with_cast() if n.name != "random"]
    graph = Graph([*nodes, const("random", normal(2, 3))])
    assert apply("remove_dropout", graph).graph is graph


def test_other_random_range_is_not_dropout():
    nodes = [const("max", 2.0) if n.name == "max" else n for n in _with_floor()]
    graph = Graph(nodes)
    assert apply("remove_dropout", graph).graph is graph


def test_a_dropout_that_is_fetched_stays():
    graph = _with_cast()
    result = apply("remove_dropout", graph, outputs=("dropped",))
    assert result.graph is graph
    assert result.skipped == {"an input or output of the graph": 1}


def test_shared_mask_nodes_stay():
    graph = Graph([*_with_cast(), node("also", "Neg", "rate")])
    after = apply("remove_dropout", graph, outputs=("out", "also")).graph
    assert {"rate", "also"} <= {n.name for n in after}
    assert "random" not in after
