"""correct_bias: biases take back what rounded weights move the channels' means by."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import AccuracyError, CorruptFileError
from mobileprep.formats.arrays import write_arrays
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.transforms.correct_bias import empirically_corrected
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run, shown

# Above zero, as activations are, so that rounding moves means.
IMAGES = np.abs(normal(32, 6, 6, 3, seed=11))

LEAST = 100  # elements: more than a bias has, fewer than any weights


def network(*more) -> Graph:
    return Graph(
        [
            placeholder(),
            const("w", normal(3, 3, 3, 16, seed=1)),
            conv("layer", "x w"),
            const("b", normal(16, seed=2)),
            node("biased", "BiasAdd", "layer b", data_format="NHWC"),
            node("act", "Relu6", "biased"),
            const("d", normal(3, 3, 16, 1, seed=3)),
            conv("deep", "act d", "DepthwiseConv2dNative"),
            node("act2", "Relu", "deep"),
            const("w2", normal(1, 1, 16, 8, seed=4)),
            conv("out", "act2 w2"),
            *more,
        ]
    )


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.npz"
    write_arrays(path, {"x": IMAGES, "label": np.arange(32)})
    return str(path)


def means(graph: Graph, name: str) -> np.ndarray:
    return run(graph, IMAGES, name).mean(axis=(0, 1, 2), dtype=np.float64)


def stored(graph: Graph, bits: int, granularity: str) -> Graph:
    """The graph with weights of few bits, and biases of float."""
    if granularity == "channel":
        return apply("linear_quantize_weights", graph, bits=bits).graph
    return apply("quantize_weights", graph, minimum_size=LEAST).graph


@pytest.mark.parametrize(("bits", "granularity"), [(8, "tensor"), (8, "channel"), (4, "channel")])
def test_means_are_those_of_float_then(data, bits, granularity):
    graph, least = (network(), LEAST) if granularity == "tensor" else (wide(), 1024)
    options = {"bits": bits, "granularity": granularity, "minimum_size": least}
    result = apply("correct_bias", graph, data=data, **options)
    expected = means(graph, "out")
    before = np.abs(means(stored(graph, bits, granularity), "out") - expected).max()
    after = np.abs(means(stored(result.graph, bits, granularity), "out") - expected).max()
    # What is left is the rounding of float32 over some hundred terms of ten.
    assert after < 1e-4 < before


def wide() -> Graph:
    """A network whose weights are all large enough to be stored in few bits."""
    sizes = {"w": (3, 3, 3, 256), "b": (256,), "d": (3, 3, 256, 1), "w2": (1, 1, 256, 32)}
    return Graph(
        [
            const(n.name, normal(*sizes[n.name], seed=i)) if n.name in sizes else n
            for i, n in enumerate(network())
        ]
    )


def test_golden(data):
    result = apply("correct_bias", network(), data=data, minimum_size=1)
    assert result.matched == 3
    assert (
        shown(result.graph)
        == """\
x = Placeholder()
w = Const() value=float32[3, 3, 3, 16]
layer = Conv2D(x, w) T=float32 data_format=NHWC padding=SAME strides=1,1,1,1
b = Const() value=float32[16]
biased = BiasAdd(layer, b) T=float32 data_format=NHWC
act = Relu6(biased) T=float32
d = Const() value=float32[3, 3, 16, 1]
deep/layer = DepthwiseConv2dNative(act, d) T=float32 data_format=NHWC padding=SAME strides=1,1,1,1
deep/bias = Const() value=float32[16]
deep = BiasAdd(deep/layer, deep/bias) T=float32 data_format=NHWC
act2 = Relu(deep) T=float32
w2 = Const() value=float32[1, 1, 16, 8]
out/layer = Conv2D(act2, w2) T=float32 data_format=NHWC padding=SAME strides=1,1,1,1
out/bias = Const() value=float32[8]
out = BiasAdd(out/layer, out/bias) T=float32 data_format=NHWC"""
    )


def test_weights_stay(data):
    graph = network()
    after = apply("correct_bias", graph, data=data, minimum_size=1).graph
    for name in ("w", "d", "w2"):
        assert after[name] is graph[name]


def test_biases_that_others_use_and_sums_that_are_fetched_stay(data):
    graph = network(node("twice", "Mul", "b b"))
    after = apply("correct_bias", graph, data=data, minimum_size=1, outputs=("out", "twice")).graph
    assert after["b"] is graph["b"]
    np.testing.assert_array_equal(run(after, IMAGES, "twice"), run(graph, IMAGES, "twice"))


def test_small_weights_and_layers_that_no_output_needs_stay(data):
    graph = network(const("w9", normal(9, 9, 3, 16)), conv("unneeded", "x w9"))
    assert apply("correct_bias", graph, data=data).graph is graph
    after = apply("correct_bias", graph, data=data, minimum_size=1).graph
    assert after["unneeded"] is graph["unneeded"]


def test_layers_of_a_branch_stay(data):
    graph = Graph(
        [
            placeholder(),
            const("p", True, bool),
            node("switch", "Switch", "x p"),
            const("w", normal(3, 3, 3, 16), inputs="^switch"),
            conv("yes", "switch:1 w"),
            node("no", "Neg", "switch"),
            node("out", "Merge", "yes no", N=2),
        ]
    )
    assert apply("correct_bias", graph, data=data, minimum_size=1).graph is graph


def test_channels_first(data, tmp_path):
    path = tmp_path / "nchw.npz"
    images = np.moveaxis(IMAGES, -1, 1)
    write_arrays(path, {"x": images})
    graph = Graph(
        [
            placeholder(),
            const("w", normal(3, 3, 3, 16, seed=1)),
            conv("layer", "x w", data_format="NCHW"),
            const("b", normal(16, 1, 1, seed=2)),
            node("out", "Add", "b layer"),
        ]
    )
    after = apply("correct_bias", graph, data=str(path), minimum_size=1).graph
    both = [run(stored(g, 8, "tensor"), images).mean(axis=(0, 2, 3)) for g in (graph, after)]
    expected = run(graph, images).mean(axis=(0, 2, 3))
    # As above: float32 rounds each of some terms of ten at 1e-6.
    assert np.abs(both[1] - expected).max() < 1e-5 < np.abs(both[0] - expected).max()


def test_samples_are_spread_over_the_file(data, monkeypatch):
    seen = []
    module = "mobileprep.transforms.correct_bias.empirically_corrected"
    monkeypatch.setattr(
        module, lambda *given: [seen.append(len(given[2])), empirically_corrected(*given)][1]
    )
    apply("correct_bias", network(), data=data, samples=5, minimum_size=1)
    assert seen == [5]


def test_a_missing_file_is_an_error():
    with pytest.raises(CorruptFileError, match="nowhere"):
        apply("correct_bias", network(), minimum_size=1, data="nowhere.npz")


def test_data_of_another_shape_or_name_is_an_error(tmp_path):
    path = tmp_path / "bad.npz"
    graph = network()
    shaped = node("x", "Placeholder", T=None, dtype=DType.FLOAT).with_attrs(
        shape=const("s", IMAGES).attrs["value"].__class__("shape", (-1, 6, 6, 3))
    )
    graph = graph.with_nodes([shaped if n.name == "x" else n for n in graph])
    write_arrays(path, {"y": IMAGES})
    with pytest.raises(AccuracyError, match="has no array 'x'"):
        apply("correct_bias", graph, data=str(path), minimum_size=1)
    write_arrays(path, {"x": IMAGES[..., :2]})
    with pytest.raises(AccuracyError, match=r"takes the shape \[\?, 6, 6, 3\]"):
        apply("correct_bias", graph, data=str(path), minimum_size=1)
