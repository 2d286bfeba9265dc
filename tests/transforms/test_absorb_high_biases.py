"""absorb_high_biases: what is always above zero goes behind the activation."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.formats.arrays import write_arrays
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run, shown

IMAGES = normal(24, 6, 6, 3, seed=5).clip(-3, 3)
# Channels 0 and 2 stay far above zero, the others do not.
BIAS = [5.0, 0.5, 4.5, -2.0]
EXAMPLE_NODES = [
    const("more_low", normal(1, 1, 4, 4) * 0.01),
    conv("more_first", "x more_low"),
    const("more_high", [5.0, 4.0, 3.0, 2.0]),
    node("more_lifted", "BiasAdd", "more_first more_high", data_format="NHWC"),
    node("more_kept", "Relu", "more_lifted"),
    const("more_next", normal(1, 1, 4, 4)),
    conv("more_second", "more_kept more_next"),
]


def network(activation: str = "Relu", *between, taker=None, more=()) -> Graph:
    return Graph(
        [
            placeholder(),
            const("w", normal(1, 1, 3, 4, seed=1) * 0.2),
            conv("layer", "x w"),
            const("b", BIAS),
            node("biased", "BiasAdd", "layer b", data_format="NHWC"),
            node("act", activation, "biased"),
            *between,
            const("w2", normal(1, 1, 4, 8, seed=4)),
            taker or conv("out", "act w2"),
            *more,
        ]
    )


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.npz"
    write_arrays(path, {"x": IMAGES})
    return str(path)


def absorbed(graph: Graph, data: str, **options):
    return apply("absorb_high_biases", graph, data=data, samples=24, **options)


BOUND = [const("k", [5.5, 5.0, 4.9, 3.0]), node("low", "Minimum", "act k")]
MATCHES = {
    "Relu": network(),
    "Relu6": network("Relu6"),
    "Minimum": network("Relu", *BOUND, taker=conv("out", "low w2")),
    "a window without padding": network(
        "Relu", const("w3", normal(3, 3, 4, 8)), taker=conv("out", "act w3", padding="VALID")
    ),
    "depthwise without padding": network(
        "Relu",
        const("w3", normal(3, 3, 4, 2)),
        taker=conv("out", "act w3", "DepthwiseConv2dNative", padding="VALID"),
    ),
    "two takers": network(
        taker=conv("left", "act w2"),
        more=[
            const("w3", normal(1, 1, 4, 8)),
            conv("right", "act w3"),
            const("b3", normal(8)),
            node("biased3", "BiasAdd", "right b3", data_format="NHWC"),
            node("out", "Add", "left biased3"),
        ],
    ),
}


@pytest.mark.parametrize("case", MATCHES)
def test_the_data_gives_the_same(case, data):
    graph = MATCHES[case]
    result = absorbed(graph, data)
    assert result.matched == 1
    # Sums of some tens of numbers below fifty, each rounded at 6e-8.
    np.testing.assert_allclose(run(result.graph, IMAGES), run(graph, IMAGES), atol=5e-5)


@pytest.mark.parametrize("case", MATCHES)
def test_the_activation_has_a_smaller_range(case, data):
    graph = MATCHES[case]
    before, after = (run(g, IMAGES, "act").max() for g in (graph, absorbed(graph, data).graph))
    assert after < before / 1.5


def test_the_least_value_and_some_deviations_below_the_mean_decide(data):
    seen = run(network(), IMAGES, "biased").reshape(-1, 4).astype(np.float64)
    for deviations in (0.0, 3.0, 4.0):
        after = absorbed(network(), data, deviations=deviations).graph
        low = np.minimum(seen.min(axis=0), seen.mean(axis=0) - deviations * seen.std(axis=0))
        moved = BIAS - after["b"].attr_tensor("value").array()
        np.testing.assert_allclose(moved, np.maximum(low, 0), atol=1e-6)


def test_golden(data):
    result = absorbed(network("Relu6"), data)
    assert (
        shown(result.graph)
        == """\
x = Placeholder()
w = Const() value=float32[1, 1, 3, 4]
layer = Conv2D(x, w) T=float32 data_format=NHWC padding=SAME strides=1,1,1,1
b = Const() value=float32[4]
biased = BiasAdd(layer, b) T=float32 data_format=NHWC
act/relu = Relu(biased) T=float32
act/bound = Const() value=float32[4]
act = Minimum(act/relu, act/bound) T=float32
w2 = Const() value=float32[1, 1, 4, 8]
out/layer = Conv2D(act, w2) T=float32 data_format=NHWC padding=SAME strides=1,1,1,1
out/bias = Const() value=float32[8]
out = BiasAdd(out/layer, out/bias) T=float32 data_format=NHWC"""
    )


NEAR_MISSES = {
    "padded with zeros": network(
        "Relu", const("w3", normal(3, 3, 4, 8)), taker=conv("out", "act w3")
    ),
    "another taker": network(more=[node("more", "Neg", "act")]),
    "another activation": network("Tanh"),
    "a negative bias": Graph([const("b", [-3.0] * 4) if n.name == "b" else n for n in network()]),
    "a bias that others use": network(more=[node("twice", "Mul", "b b")]),
    "a bound that is computed": network(
        "Relu",
        const("k", [5.5, 5.0, 4.9, 3.0]),
        node("kk", "Neg", "k"),
        node("low", "Minimum", "act kk"),
        taker=conv("out", "low w2"),
    ),
    "flattened": network(
        "Relu",
        const("shape", [-1, 4], np.int32),
        node("flat", "Reshape", "act shape"),
        const("w3", normal(4, 8)),
        taker=node("out", "MatMul", "flat w3"),
    ),
}


@pytest.mark.parametrize("case", NEAR_MISSES)
def test_near_misses_stay(case, data):
    graph = NEAR_MISSES[case]
    assert absorbed(graph, data).graph is graph


def test_an_activation_that_is_fetched_stays(data):
    graph = network()
    assert absorbed(graph, data, outputs=("out", "act")).graph is graph


def test_layers_that_take_nothing_get_no_bias(data):
    """Only the first of two activations stays above zero."""
    graph = network(
        taker=conv("mid", "act down"),
        more=[
            const("down", -np.abs(normal(1, 1, 4, 8))),
            node("act2", "Relu", "mid"),
            const("w3", normal(1, 1, 8, 4)),
            conv("out", "act2 w3"),
        ],
    )
    after = absorbed(graph, data).graph
    assert after["mid"].op == "BiasAdd"
    assert after["out"].op == "Conv2D"


def test_missing_data_is_an_error():
    with pytest.raises(CorruptFileError, match="nowhere"):
        absorbed(network(), "nowhere.npz")
