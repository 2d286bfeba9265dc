"""reconstruct_weights: rounded weights with which layers compute the same."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from mobileprep.errors import TransformError
from mobileprep.formats.arrays import write_arrays
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.litert.weights import quantized_weights
from mobileprep.ops.numerics.ranges import channel_steps
from mobileprep.transforms import reconstruct_weights
from mobileprep.transforms.quantize_nodes.weights import WeightSettings, quantize_weights
from mobileprep.transforms.reconstruct_weights.matrices import LayerMatrices
from mobileprep.transforms.reconstruct_weights.rounding import Moments, RoundingProblem
from mobileprep.transforms.rewriting.clipping import eightbit_constant
from mobileprep.transforms.rewriting.layers import linear_weights, weights_stored_before
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run, shown


def correlated(*shape: int, seed: int) -> np.ndarray:
    """Return positive images whose channels and neighbors resemble each other."""
    images = normal(*shape, seed=seed)
    images += images.mean(axis=-1, keepdims=True) * 4
    return np.abs(images + np.roll(images, 1, axis=1) + np.roll(images, 1, axis=2))


IMAGES = correlated(24, 8, 8, 4, seed=1)
OTHERS = correlated(24, 8, 8, 4, seed=2)


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.npz"
    write_arrays(path, {"x": IMAGES})
    return str(path)


def network(*more) -> Graph:
    return Graph(
        [
            placeholder(),
            const("w", normal(3, 3, 4, 16, seed=1)),
            conv("layer", "x w"),
            const("b", normal(16, seed=2)),
            node("biased", "BiasAdd", "layer b", data_format="NHWC"),
            node("act", "Relu", "biased"),
            const("d", normal(3, 3, 16, 2, seed=3)),
            conv("deep", "act d", "DepthwiseConv2dNative"),
            node("act2", "Relu", "deep"),
            const("w2", normal(1, 1, 32, 8, seed=4)),
            conv("out", "act2 w2"),
            *more,
        ]
    )


def weights(graph: Graph, name: str) -> np.ndarray:
    return graph[name].attr_tensor("value").array()


def nearest(values: np.ndarray, axes: tuple[int, ...], most: int, method="min_max") -> np.ndarray:
    """Round each weight to the nearest step."""
    steps = channel_steps(values, axes, method, most)
    return np.clip(np.rint(values / steps), -most, most) * steps


def with_weights(graph: Graph, new: dict[str, np.ndarray]) -> Graph:
    return graph.with_nodes(const(n.name, new[n.name]) if n.name in new else n for n in graph)


def off_by(graph: Graph, images: np.ndarray) -> float:
    """Return the error of the output as a share of its spread."""
    expected = run(network(), images, "out")
    difference = run(graph, images, "out") - expected
    return float(np.sqrt(np.square(difference).mean()) / expected.std())


AXES = {"w": (-1,), "d": (-2, -1), "w2": (-1,)}


@pytest.mark.parametrize(("bits", "method"), [(8, "min_max"), (4, "mse")])
def test_outputs_change_less_than_with_the_nearest_steps(data, bits, method):
    most = (1 << (bits - 1)) - 1
    result = apply("reconstruct_weights", network(), data=data, bits=bits)
    plain = {k: nearest(weights(network(), k), axes, most, method) for k, axes in AXES.items()}
    assert result.matched == 3
    assert 1.7 * off_by(result.graph, OTHERS) < off_by(with_weights(network(), plain), OTHERS)


@pytest.mark.parametrize("bits", [8, 4])
def test_weights_are_on_the_steps_that_quantization_chooses(data, bits):
    result = apply("reconstruct_weights", network(), data=data, bits=bits)
    most = (1 << (bits - 1)) - 1
    for name, axes in AXES.items():
        values = weights(result.graph, name)
        levels = values / channel_steps(values, axes, "min_max", most)
        np.testing.assert_allclose(levels, np.rint(levels), atol=1e-4)
        assert np.abs(np.rint(levels)).max() == most


def test_one_scale_for_the_tensor(data):
    result = apply("reconstruct_weights", network(), data=data, granularity="tensor")
    for name in AXES:
        values = weights(result.graph, name)
        levels = values / (np.abs(values).max() / 127)
        np.testing.assert_allclose(levels, np.rint(levels), atol=1e-4)


def test_biases_keep_the_means(data):
    result = apply("reconstruct_weights", network(), data=data, bits=4)
    moved = run(result.graph, IMAGES, "biased").mean(axis=(0, 1, 2), dtype=np.float64)
    expected = run(network(), IMAGES, "biased").mean(axis=(0, 1, 2), dtype=np.float64)
    np.testing.assert_allclose(moved, expected, atol=1e-4)


def test_two_inputs_that_are_always_equal_round_together(tmp_path):
    # Both inputs are the same, so only the sum of the two weights matters: the nearest steps of
    # 0.4 and 0.4 are 0 and 0, but 0 and 1 are closer to their sum.
    graph = Graph(
        [
            placeholder(),
            const("w", np.array([[0.4], [0.4], [127]], np.float32)),
            node("out", "MatMul", "x w"),
        ]
    )
    rows = np.repeat(normal(64, 1, seed=5), 3, axis=1)
    rows[:, 2] = normal(64, seed=6)
    write_arrays(tmp_path / "rows.npz", {"x": rows})
    result = apply("reconstruct_weights", graph, data=str(tmp_path / "rows.npz"), damping=1e-4)
    assert sorted(weights(result.graph, "w").reshape(-1).tolist()) == [0, 1, 127]


def test_transposed_products(tmp_path):
    values = normal(5, 12, seed=7)
    rows = correlated(40, 1, 1, 12, seed=8).reshape(40, 12)
    write_arrays(tmp_path / "rows.npz", {"x": rows})
    straight, turned = (
        Graph([placeholder(), const("w", array), node("out", "MatMul", "x w", **how)])
        for array, how in ((values.T.copy(), {}), (values, {"transpose_b": True}))
    )
    options = {"data": str(tmp_path / "rows.npz"), "bits": 4}
    one, other = (apply("reconstruct_weights", g, **options).graph for g in (straight, turned))
    np.testing.assert_array_equal(weights(one, "w"), weights(other, "w").T)


def test_channels_first(data, tmp_path):
    images = np.moveaxis(IMAGES, -1, 1).copy()
    write_arrays(tmp_path / "first.npz", {"x": images})
    last, first = (
        Graph(
            [
                placeholder(),
                const("w", normal(3, 3, 4, 16, seed=1)),
                conv("out", "x w", data_format=layout),
            ]
        )
        for layout in ("NHWC", "NCHW")
    )
    one = apply("reconstruct_weights", last, data=data).graph
    other = apply("reconstruct_weights", first, data=str(tmp_path / "first.npz")).graph
    np.testing.assert_array_equal(weights(one, "w"), weights(other, "w"))


@pytest.mark.parametrize("other", ["v", "copy"])
def test_layers_that_share_weights_keep_them(data, other):
    values = normal(1, 1, 8, 8, seed=9)
    more = [const("v", values), const("copy", values)]
    more += [conv("again", "out v"), conv("twice", f"again {other}")]
    result = apply("reconstruct_weights", network(*more), outputs=("twice",), data=data)
    assert result.skipped == {"several layers share the weights": 2}
    np.testing.assert_array_equal(weights(result.graph, "v"), normal(1, 1, 8, 8, seed=9))


def unrolled(twin: str = "w") -> Graph:
    """Return two steps of a recurrent network that share the weights ``w``."""
    return Graph(
        [
            placeholder(),
            const("start", normal(12, 24, seed=20)),
            node("first", "MatMul", "x start"),
            node("h0", "Relu", "first"),
            const("w", normal(24, 24, seed=21) / 5),
            const("copy", normal(24, 24, seed=21) / 5),
            node("second", "MatMul", "h0 w"),
            node("h1", "Relu", "second"),
            node("out", "MatMul", f"h1 {twin}"),
        ]
    )


def looped() -> Graph:
    """Return the same network with the two steps as a loop of version 1."""
    return Graph(
        [
            *[n for n in unrolled() if n.name in ("x", "start", "first", "h0", "w")],
            const("zero", 0, np.int32),
            node("enter_w", "Enter", "w", frame_name="f", is_constant=True),
            node("enter_h", "Enter", "h0", frame_name="f"),
            node("enter_i", "Enter", "zero", T=DType.INT32, frame_name="f"),
            node("merge_h", "Merge", "enter_h next_h", N=2),
            node("merge_i", "Merge", "enter_i next_i", N=2, T=DType.INT32),
            const("two", 2, np.int32, inputs="^merge_i"),
            node("less", "Less", "merge_i two", T=DType.INT32),
            node("again", "LoopCond", "less", T=None),
            node("switch_h", "Switch", "merge_h again"),
            node("switch_i", "Switch", "merge_i again", T=DType.INT32),
            const("one", 1, np.int32, inputs="^merge_i"),
            node("more", "Add", "switch_i:1 one", T=DType.INT32),
            node("relu", "Relu", "switch_h:1"),
            node("product", "MatMul", "relu enter_w"),
            node("next_h", "NextIteration", "product"),
            node("next_i", "NextIteration", "more", T=DType.INT32),
            node("out", "Exit", "switch_h"),
        ]
    )


@pytest.mark.parametrize("graph", [unrolled(), unrolled("copy"), looped()])
def test_products_that_run_several_times(tmp_path, graph):
    rows, others = (np.abs(correlated(400, 1, 1, 12, seed=s).reshape(400, 12)) for s in (22, 23))
    write_arrays(tmp_path / "rows.npz", {"x": rows})
    options = {"data": str(tmp_path / "rows.npz"), "bits": 4}
    result = apply("reconstruct_weights", graph, **options)
    values = weights(result.graph, "w")
    levels = values / channel_steps(values, (-1,), "min_max", 7)
    np.testing.assert_allclose(levels, np.rint(levels), atol=1e-4)
    if "copy" in graph:
        used = str(graph["out"].data_inputs[1])
        np.testing.assert_array_equal(weights(result.graph, used), values)
    # With the float weights in front, so that only the shared weights differ.
    start = weights(graph, "start")
    plain = nearest(weights(graph, "w"), (-1,), 7, "mse")
    errors = []
    for shared in (values, plain):
        new = with_weights(graph, {"w": shared, "copy": shared, "start": start})
        errors.append(np.square(run(new, others) - run(graph, others)).mean())
    assert 1.5 * errors[0] < errors[1]


def test_samples_are_needed():
    with pytest.raises(TransformError, match="it needs samples"):
        apply("reconstruct_weights", network())


def test_the_same_bytes_again(data):
    one, other = (apply("reconstruct_weights", network(), data=data).graph for _ in range(2))
    assert shown(one) == shown(other)


def transposed(**attrs) -> Graph:
    """Return a transposed convolution to 15x16 of images of 8x8."""
    return Graph(
        [
            placeholder(),
            const("size", [1, 15, 16, 6], np.int32),
            const("w", normal(3, 2, 6, 4, seed=11)),
            conv("out", "size w x", "Conv2DBackpropInput", strides=(1, 2, 2, 1), **attrs),
        ]
    )


def upsampled(graph: Graph, images: np.ndarray) -> np.ndarray:
    return np.concatenate([run(graph, image[np.newaxis]) for image in images])


@pytest.mark.parametrize(
    ("granularity", "axes", "bits"),
    [("channel", (-2,), 8), ("tensor", (), 8), ("channel", (-2,), 4)],
)
def test_transposed_convolutions(data, granularity, axes, bits):
    graph, most = transposed(), (1 << (bits - 1)) - 1
    options = {"granularity": granularity, "bits": bits, "data": data}
    result = apply("reconstruct_weights", graph, **options)
    assert result.matched == 1
    values = weights(result.graph, "w")
    levels = values / channel_steps(values, axes, "min_max", most)
    np.testing.assert_allclose(levels, np.rint(levels), atol=1e-4)
    plain = nearest(weights(graph, "w"), axes, most, "min_max" if bits == 8 else "mse")
    expected = upsampled(graph, OTHERS)
    errors = [
        np.square(upsampled(g, OTHERS) - expected).mean()
        for g in (result.graph, with_weights(graph, {"w": plain}))
    ]
    assert 2 * errors[0] < errors[1]


def test_rows_of_a_layer_times_its_weights_are_its_outputs():
    # Strides, dilations, and uneven padding.
    x = correlated(2, 7, 8, 4, seed=12)
    layers = {
        "conv": conv("out", "x w", strides=(1, 2, 3, 1), dilations=(1, 2, 1, 1)),
        "deep": conv("out", "x w", "DepthwiseConv2dNative", padding="VALID"),
        "up": conv("out", "size w x", "Conv2DBackpropInput", strides=(1, 2, 3, 1)),
    }
    shapes = {"conv": (3, 2, 4, 5), "deep": (3, 2, 4, 2), "up": (3, 5, 6, 4)}
    for kind, layer in layers.items():
        filters = normal(*shapes[kind], seed=13)
        size = const("size", [2, 13, 24, 6], np.int32)
        output = run(Graph([placeholder(), size, const("w", filters), layer]), x)
        matrices = LayerMatrices(layer, filters, x)
        chosen = np.arange(0, matrices.rows(output), 3)
        rows = matrices.input_rows(x, output, chosen) @ matrices.weights
        np.testing.assert_allclose(rows, matrices.output_rows(output, chosen), atol=1e-4)
        np.testing.assert_array_equal(matrices.restored(matrices.weights), filters)


def in_nodes(values: np.ndarray, granularity: str | None, bits: int) -> np.ndarray:
    """Return weights as quantize_nodes stores them."""
    stored = quantize_weights(values, (-1,), WeightSettings(bits, granularity))
    levels = stored.values.astype(np.float64) - stored.steps.zero
    return levels * (stored.steps.size if stored.scales is None else stored.scales)


def in_litert(values: np.ndarray, granularity: str, bits: int) -> np.ndarray:
    """Return weights as a .tflite file stores them."""
    settings = WeightSettings(bits, granularity)
    levels, details = quantized_weights(values, values.ndim - 1, settings)
    return levels * details.scales.astype(np.float64)


@pytest.mark.parametrize("bits", [8, 6, 4, 3, 2])
@pytest.mark.parametrize(
    ("granularity", "symmetric", "storages"),
    [
        ("channel", True, ["litert channel", "nodes channel", "nodes", "linear channel"]),
        ("tensor", True, ["litert tensor", "nodes tensor", "nodes", "linear tensor"]),
        ("tensor", False, ["nodes tensor", "nodes", "linear tensor", "linear channel", "weights"]),
    ],
)
def test_quantization_keeps_the_reconstructed_weights(data, bits, granularity, symmetric, storages):
    graph = Graph([placeholder(), const("w", normal(3, 3, 4, 16, seed=1)), conv("out", "x w")])
    options = {"bits": bits, "granularity": granularity, "symmetric": symmetric, "data": data}
    values = weights(apply("reconstruct_weights", graph, **options).graph, "w")
    assert np.unique(values).size > 2
    for storage in storages:
        kind, _, by = storage.partition(" ")
        if kind == "litert":
            back = in_litert(values, by, bits)
        elif kind == "nodes":
            back = in_nodes(values, by or None, bits)
        elif kind == "linear":
            axes = (-1,) if by == "channel" else ()
            stored = weights_stored_before(values, bits) or linear_weights(values, axes, bits)
            back = stored.decoded()
        else:
            back = eightbit_constant(values).decoded() if bits == 8 else values
        step = np.abs(values).max() / (1 << bits)
        np.testing.assert_allclose(back, values, atol=1e-3 * step, err_msg=storage)


def test_fewer_samples_if_their_outputs_need_too_much_memory(data, monkeypatch):
    # Per run, in the float and in the rounded network: 8 * 8 * (16 + 32) float32.
    monkeypatch.setattr(reconstruct_weights, "_MOST_STORED", 6 * 2 * 8 * 8 * 48 * 4)
    limited = apply("reconstruct_weights", network(), data=data).graph
    monkeypatch.undo()
    six, all_ = (
        apply("reconstruct_weights", network(), data=data, samples=n).graph for n in (6, 24)
    )
    for name in AXES:
        np.testing.assert_array_equal(weights(limited, name), weights(six, name))
    assert (weights(limited, "w2") != weights(all_, "w2")).any()


def test_means_may_be_much_larger_than_deviations():
    # In float32, squares of 10,000 have steps of 8, which hide deviations of 1.
    rows = np.random.default_rng(14).standard_normal((1, 5000, 3)) + 10000
    rows = rows.astype(np.float32)
    moments = Moments(np.zeros((1, 3, 1), np.float32))
    moments.add(rows[:, :4000], rows[:, :4000, :1])
    moments.add(rows[:, 4000:], rows[:, 4000:, :1])
    squares, products = moments.damped(1e-6)
    expected = np.cov(rows[0].astype(np.float64), rowvar=False, bias=True)
    np.testing.assert_allclose(squares[0], expected, atol=1e-4)
    np.testing.assert_allclose(products[0], expected[:, :1], atol=1e-3)


def test_samples_that_are_not_finite(tmp_path):
    images = IMAGES.copy()
    images[3, 2, 2, 1] = np.nan
    write_arrays(tmp_path / "data.npz", {"x": images})
    with pytest.raises(TransformError, match="the inputs of 'layer' are not finite") as caught:
        apply("reconstruct_weights", network(), data=str(tmp_path / "data.npz"))
    assert caught.value.hint == "check the samples, and the outputs of the layers before it"


def test_asymmetric_steps_of_channels(data):
    with pytest.raises(TransformError, match="only steps of a whole tensor can be asymmetric"):
        apply("reconstruct_weights", network(), data=data, symmetric=False)


def test_rounding_is_the_best_of_all_for_two_products():
    # Nearest plane: the products are nearly parallel, so only the sum of the levels matters.
    squares = np.array([[[1.0, 0.9], [0.9, 1.0]]])
    values = np.array([[[0.4], [0.4]]])
    levels = RoundingProblem(squares).levels(values, -1, 1)
    errors = {}
    for first in (-1, 0, 1):
        for second in (-1, 0, 1):
            off = values[0, :, 0] - [first, second]
            errors[first, second] = off @ squares[0] @ off
    assert tuple(levels.reshape(-1)) in {
        k for k, v in errors.items() if v <= min(errors.values()) + 1e-12
    }


_HASH = """
import hashlib, sys
from mobileprep.building.transforming import transform
from tests.transforms.test_reconstruct_weights import network
graph = transform(network(), f"reconstruct_weights(data={sys.argv[1]})", ["x"], ["out"]).graph
values = [n.attr_tensor("value").array() for n in graph if n.op == "Const"]
print(hashlib.sha256(b"".join(v.tobytes() for v in values)).hexdigest())
"""


@pytest.mark.slow
def test_the_same_bytes_with_any_number_of_threads(data):
    digests = set()
    for threads in ("1", "2", "5"):
        environ = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        command = [sys.executable, "-c", _HASH, data]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        digests.add(done.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("storing", "storing_options", "options"),
    [
        ("quantize_weights", {}, {"granularity": "tensor", "symmetric": False}),
        ("linear_quantize_weights", {}, {}),
        ("linear_quantize_weights", {"bits": 4}, {"bits": 4}),
        (
            "linear_quantize_weights",
            {"bits": 3, "granularity": "tensor"},
            {"bits": 3, "granularity": "tensor"},
        ),
    ],
)
def test_transforms_that_store_weights_do_not_round_again(data, storing, storing_options, options):
    graph = Graph([placeholder(), const("w", normal(3, 3, 4, 64, seed=15)), conv("out", "x w")])
    rounded = apply("reconstruct_weights", graph, data=data, **options).graph
    stored = apply(storing, rounded, **storing_options)
    assert stored.matched == 1
    expected = run(rounded, OTHERS)
    off = np.abs(run(stored.graph, OTHERS) - expected).max()
    assert off < 2e-5 * np.abs(expected).max()
