"""backport_concatv2: the axis moves from the end to the front."""

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, node, normal, placeholder, run, shown


def _graph(inputs="x relu axis", axis=1, kind=np.int32, index=DType.INT32):
    return Graph(
        [
            placeholder(),
            node("relu", "Relu", "x"),
            const("axis", axis, kind),
            node("out", "ConcatV2", inputs, N=2, Tidx=index),
        ]
    )


@pytest.mark.parametrize("tf115", [True, False])
def test_it_computes_the_same(tf115):
    graph = _graph()
    result = apply("backport_concatv2", graph, tf115=tf115)
    assert result.matched == 1
    x = normal(2, 3)
    np.testing.assert_array_equal(run(result.graph, x), run(graph, x))


def test_control_inputs_stay_at_the_end():
    """The original takes the last input for the axis, whatever it is."""
    concat = apply("backport_concatv2", _graph("x relu axis ^x"), tf115=True).graph["out"]
    assert [str(r) for r in concat.inputs] == ["axis", "x", "relu", "^x"]


@pytest.mark.parametrize("tf115", [True, False])
def test_unsupported_concat_axis_is_skipped(tf115):
    graph = _graph(kind=np.int64, index=DType.INT64)
    result = apply("backport_concatv2", graph, tf115=tf115)
    assert result.graph is graph
    assert result.skipped == {"the axis is int64, which Concat does not take": 1}


def test_concat_without_tensors_is_skipped():
    graph = Graph([placeholder(), node("out", "ConcatV2", "^x", N=2, Tidx=DType.INT32)])
    result = apply("backport_concatv2", graph)
    assert result.graph is graph
    assert result.skipped == {"it takes no tensors": 1}


def test_a_graph_without_concatv2_is_the_same_object():
    graph = Graph([placeholder(), node("out", "Relu", "x")])
    assert apply("backport_concatv2", graph).graph is graph


def test_golden():
    assert shown(apply("backport_concatv2", _graph()).graph) == (
        "x = Placeholder()\n"
        "relu = Relu(x) T=float32\n"
        "axis = Const() value=int32[]:1\n"
        "out = Concat(axis, x, relu) N=2 T=float32"
    )
