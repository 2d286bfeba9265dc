"""quantize_nodes: weights of layers that compute in floats, stored in eight bits."""

from collections import Counter

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.verify import check_graph
from mobileprep.transforms.quantize_nodes.layers import ranged_tensors
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run

NAME = "quantize_nodes"
DEPTHWISE = "TensorFlow has no kernel of its own for eight-bit depthwise convolutions"
STORED = "; its weights are stored in 8 bits"
X = normal(1, 5, 5, 128, seed=5)


def _depthwise(size=3, channels=128, *, name="out", weights="d"):
    return [
        const(weights, normal(size, size, channels, 1, seed=2) / 3),
        conv(name, f"x {weights}", op="DepthwiseConv2dNative"),
    ]


def _graph(*more, **given):
    return Graph([placeholder(), *_depthwise(**given), *more])


def _apply(graph, *rules, **options):
    result = apply(NAME, graph, ranges="dynamic", rule=rules, **options)
    check_graph(result.graph, "test")
    return result


def _large(graph):
    """The types of constants of many elements."""
    stored = (n.attr_tensor("value") for n in graph if n.op == "Const")
    return Counter(
        t.dtype for t in stored if t.size >= 100 and len(t.shape) == 4 and t.shape[0] > 1
    )


def test_a_depthwise_convolution_stores_its_weights_in_eight_bits():
    graph = _graph()
    result = _apply(graph)
    assert (result.matched, result.skipped) == (1, {DEPTHWISE + STORED: 1})
    assert _large(result.graph) == {DType.QUINT8: 1}
    assert result.graph["out"].op == "DepthwiseConv2dNative"
    assert not [n for n in result.graph if n.op.startswith("Quantize")]
    # Nine weights of three steps' halves at most, each step a 127th of the largest weight.
    largest = np.abs(graph["d"].attr_tensor("value").array()).max()
    bound = np.abs(X).max() * 9 * largest / 127
    assert 0 < np.abs(run(result.graph, X) - run(graph, X)).max() < bound


@pytest.mark.parametrize(
    "graph",
    [
        Graph(
            [
                placeholder(),
                const("w", normal(3, 3, 128, 4, seed=2)),
                conv("out", "x w", strides=(1, 1, 2, 1)),
            ]
        ),
        Graph(
            [
                placeholder(),
                const("w", normal(3, 3, 128, 4, seed=2)),
                conv("out", "x w", dilations=(1, 2, 2, 1)),
            ]
        ),
        Graph(
            [placeholder(), const("w", normal(2, 3, 3, 128)), node("out", "BatchMatMulV2", "x w")]
        ),
    ],
    ids=["unequal strides", "dilations", "no eight-bit form"],
)
def test_nodes_without_kernel_stay_float(graph):
    result = _apply(graph)
    assert result.matched == 1
    assert [reason for reason in result.skipped if reason.endswith(STORED)]
    assert _large(result.graph) == {DType.QUINT8: 1}


def test_a_layer_of_a_range_too_narrow_for_the_kernel_stores_its_weights(tmp_path):
    file = tmp_path / "ranges.yaml"
    file.write_text("version: 1\ntensors:\n  x: {min: 0.0, max: 0.001}\n")
    graph = Graph([placeholder(), const("w", normal(3, 3, 128, 4, seed=2)), conv("out", "x w")])
    result = apply(NAME, graph, range_file=str(file))
    assert result.matched == 1
    assert result.graph["out"].op == "Conv2D"
    assert _large(result.graph) == {DType.QUINT8: 1}
    (reason,) = +result.skipped
    assert reason.endswith(STORED)


@pytest.mark.parametrize(
    ("rules", "options"),
    [
        (("mode=float ops=DepthwiseConv2dNative",), {}),
        ((), {"store_rest": False}),
        ((), {"ignore_op": ("DepthwiseConv2dNative",)}),
    ],
)
def test_layers_can_be_excluded(rules, options):
    graph = _graph()
    assert _apply(graph, *rules, **options).graph is graph


LITTLE_SAVED = {
    "few elements": _graph(channels=113),
    "as many scales as weights": _graph(size=1, channels=2048),
    "a float op takes the weights too": _graph(node("also", "Neg", "d")),
    "and through an identity": _graph(node("same", "Identity", "d"), node("also", "Neg", "same")),
}


@pytest.mark.parametrize("why", LITTLE_SAVED)
def test_weights_that_would_take_as_much_stay(why):
    graph = LITTLE_SAVED[why]
    result = _apply(graph)
    assert result.graph is graph
    assert result.skipped == {DEPTHWISE: 1}


def test_a_rule_stores_weights_of_any_size():
    result = _apply(_graph(channels=16), "granularity=channel")
    assert result.matched == 1
    assert _large(result.graph) == {DType.QUINT8: 1}


def test_layers_share_stored_weights():
    graph = _graph(
        conv("other", "x d", op="DepthwiseConv2dNative"), node("sum", "Add", "out other")
    )
    result = apply(NAME, graph, outputs=("sum",), ranges="dynamic")
    assert result.matched == 2
    assert _large(result.graph) == {DType.QUINT8: 1}


def test_weights_that_are_in_eight_bits_already_stay_as_they_are():
    stored = apply("quantize_weights", _graph()).graph
    assert _apply(stored).graph is stored


def test_a_calibration_asks_no_range_for_them():
    assert ranged_tensors(_graph()) == ()
