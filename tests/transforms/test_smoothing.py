"""equalize_ranges with data: 8-bit activations lose less, and the graph computes the same."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.graph.graph import Graph
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.equalize_ranges.activations import (
    Channels,
    _Activation,
    _Errors,
    _minimized,
    _Term,
    _Weights,
    observed_channels,
)
from mobileprep.transforms.rewriting.channel_scales import ScaledLayer, find_scales
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run
from tests.transforms.test_equalize_ranges import IMAGE, MATCHES, between

RELU = node("act", "Relu", "biased")
RELU6 = node("act", "Relu6", "biased")
DEEP = [
    const("d", normal(3, 3, 8, 1, seed=5)),
    conv("out", "act d", "DepthwiseConv2dNative"),
]
SAMPLES = normal(32, *IMAGE[1:], seed=7)


@pytest.fixture
def data(tmp_path) -> str:
    """A file of samples with more than 1024 values of each channel."""
    np.savez(tmp_path / "samples.npz", x=SAMPLES)
    return str(tmp_path / "samples.npz")


def peaks(graph: Graph, name: str) -> np.ndarray:
    """The largest value of each channel of a tensor on the samples."""
    values = run(graph, SAMPLES, name)
    return values.max(axis=tuple(range(values.ndim - 1)))


def rounded(graph: Graph, x: np.ndarray) -> np.ndarray:
    """The output with the activation rounded to 256 levels."""
    values = run(graph, x, "act")
    low, high = min(values.min(), 0), max(values.max(), 0)
    step = (high - low) / 255

    feeds = {"x": x, "act": (np.rint(values / step) * step).astype(np.float32)}
    return Interpreter(graph).run(["out"], feeds)[0]


def noise(graph: Graph, expected: np.ndarray) -> float:
    return float(np.square(rounded(graph, SAMPLES) - expected).mean())


@pytest.mark.parametrize("case", MATCHES)
def test_results_are_the_same_up_to_rounding(case, tmp_path):
    size = const("size", [1, 12, 12, 4], np.int32)
    is_transposed = case == "transposed convolution"
    graph = Graph(size if is_transposed and n.name == "size" else n for n in MATCHES[case])
    x = normal(1, *IMAGE[1:], seed=7) * 3
    np.savez(tmp_path / "x.npz", x=x)
    result = apply("equalize_ranges", graph, data=str(tmp_path / "x.npz"))
    expected = run(graph, x)
    np.testing.assert_allclose(run(result.graph, x), expected, atol=2e-6 * np.abs(expected).max())


def test_channels_have_one_range_if_the_weights_behind_have_their_own_scales(data):
    """A depthwise layer's weights lose nothing, so the activation's error alone decides."""
    graph = between(RELU, behind=DEEP)
    before = peaks(graph, "act")
    after = peaks(apply("equalize_ranges", graph, data=data).graph, "act")
    # Channels below a level of the whole range do not count as narrower.
    wide = before > before.max() / 256
    assert before[wide].max() / before[wide].min() > 100
    # Scales go half of the way, so that the ratio is about the square root.
    ratio = before[wide].max() / before[wide].min()
    assert after[wide].max() / after[wide].min() < 1.3 * ratio**0.5


def test_rounding_the_activation_loses_less(data):
    graph = between(RELU)
    after = apply("equalize_ranges", graph, data=data)
    assert after.matched == 1
    expected = run(graph, SAMPLES)
    assert noise(after.graph, expected) < noise(graph, expected) / 2


def test_relu6_stays_one_operator_and_clips_no_sample(data):
    graph = between(RELU6, behind=DEEP)
    after = apply("equalize_ranges", graph, data=data).graph
    assert after["act"].op == "Relu6"
    before = peaks(graph, "biased")
    full = before * 1.5 >= 6
    np.testing.assert_array_equal(peaks(after, "biased")[full], before[full])
    assert 0 < full.sum() < len(full)
    # The others are at most as near to 6 as the headroom allows.
    others = peaks(after, "biased")[~full]
    assert (others <= 6 / 1.5 * (1 + 1e-6)).all()
    assert others.min() > 3 * before[~full].min()


def test_a_number_as_bound_stays_one_number(data):
    nodes = [const("k", 3.0), node("low", "Minimum", "k act"), const("z", 0.0)]
    graph = between(RELU, *nodes, node("clipped", "Maximum", "low z"), last="clipped")
    after = apply("equalize_ranges", graph, data=data).graph
    assert [after[name].attr_tensor("value").shape for name in ("k", "z")] == [(), ()]
    expected = run(graph, SAMPLES)
    np.testing.assert_allclose(run(after, SAMPLES), expected, atol=2e-6 * np.abs(expected).max())


def test_relu6_is_kept_on_request(data):
    result = apply("equalize_ranges", between(RELU6), data=data, relu6="keep")
    assert result.matched == 0
    assert "a Relu6 has one bound for all channels" in result.skipped


def test_channel_that_is_never_positive_is_not_blown_up(data):
    """On other data, its values would leave the range of all others."""
    bias = np.where(np.arange(8) == 2, -1e6, 1).astype(np.float32)
    graph = Graph([const("b", bias) if n.name == "b" else n for n in between(RELU)])
    assert peaks(graph, "act")[2] == 0
    after = apply("equalize_ranges", graph, data=data).graph
    factors = after["b"].attr_tensor("value").array() / bias
    assert factors[2] < 300 * factors.min()


def test_tensors_that_are_not_finite_stay(tmp_path):
    samples = SAMPLES.copy()
    samples[1, 0, 0, 0] = np.inf
    np.savez(tmp_path / "x.npz", x=samples)
    graph = between(RELU)
    assert apply("equalize_ranges", graph, data=str(tmp_path / "x.npz")).graph is graph


def test_powers_of_two_do_not_change_a_bit(data):
    graph = between(RELU)
    result = apply("equalize_ranges", graph, data=data, powers_of_two=True)
    assert result.matched == 1
    np.testing.assert_array_equal(run(result.graph, SAMPLES), run(graph, SAMPLES))


def test_same_bytes_again(data):
    first, second = (apply("equalize_ranges", between(RELU), data=data).graph for _ in range(2))
    for name in ("w", "b", "w2"):
        values = [g[name].attr_tensor("value").array().tobytes() for g in (first, second)]
        assert values[0] == values[1]


def test_missing_data_is_an_error():
    with pytest.raises(CorruptFileError, match="nowhere"):
        apply("equalize_ranges", between(RELU), data="nowhere.npz")


def test_only_samples_asked_for_are_measured(data):
    graph = between(RELU)
    scales = find_scales(graph, ("x", "out"))
    runs = [{"x": SAMPLES[i : i + 1]} for i in range(len(SAMPLES))]
    channels = observed_channels(graph, scales, ["out"], runs)
    act = next(seen for ref, seen in channels.items() if ref.node == "act")
    values = run(graph, SAMPLES, "act").reshape(-1, 8).astype(np.float64)
    np.testing.assert_allclose(act.high, values.max(axis=0))
    np.testing.assert_allclose(act.power, np.square(values).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(act.variance, values.var(axis=0), rtol=1e-4)


def _seen(high: list[float], low: list[float]) -> Channels:
    channels = Channels(None)
    channels.high, channels.low = np.array(high), np.array(low)
    return channels


def _rounded_weights(peaks: list[list[float]]) -> _Weights:
    power = np.array([1.0, 2.0]) / (12 * 127**2)
    return _Weights(np.array([0, 1]), np.log(peaks), power)


def test_expected_error_of_an_activation():
    """Steps of (8 + 1) / 255 in both channels, whose errors count three times and once."""
    term = _Activation(np.array([0, 1]), _seen([8, 0.5], [-0.5, -1]), np.array([3.0, 1.0]))
    error = term.add_to(np.zeros(2), np.zeros(2))
    assert error == pytest.approx((9 / 255) ** 2 / 12 * 4, rel=1e-6)


def test_expected_error_of_weights():
    """Steps of 2 / 127 and of 4 / 127, in front of inputs with mean squares of 1 and 2."""
    term = _rounded_weights([[2, 1], [0.5, 4]])
    error = term.add_to(np.zeros(2), np.zeros(2))
    assert error == pytest.approx((2**2 + 4**2) / (12 * 127**2) * (1 + 2), rel=1e-6)


def test_error_grows_with_the_square_of_a_factor():
    factors = const("k", [1, 2, 3, 4, 5, 6, 7, 8])
    graph = between(RELU, factors, node("scaled", "Mul", "act k"), last="scaled")
    scales = find_scales(graph, ("x", "out"))
    channels = observed_channels(graph, scales, ["out"], [{"x": SAMPLES}])
    places = np.arange(len(scales.variables.roots()))
    terms = _Errors(graph, scales, channels, places).terms()
    before, after = [term for term in terms if isinstance(term, _Activation)][:2]
    expected = np.square(np.arange(1, 9))
    np.testing.assert_allclose(before._factors / after._factors, expected, rtol=1e-5)


@pytest.mark.parametrize("most", [1 << 21, 6])
@pytest.mark.parametrize("transposed", [False, True])
def test_expected_error_of_a_layer(most, transposed, monkeypatch):
    """Two inputs share a scale. A part of the outputs stands for all of them, which are alike."""
    monkeypatch.setattr("mobileprep.transforms.equalize_ranges.activations._MOST_WEIGHTS", most)
    weights = np.repeat(np.array([[1], [-3], [2]], np.float32), 4, axis=1)
    dense = node("layer", "MatMul", "x w", transpose_b=transposed)
    kernel = const("w", weights.T if transposed else weights)
    scaled = ScaledLayer(dense, kernel, np.array([0, 0, 1]), np.arange(4))
    term = _Weights.of(scaled, np.array([5, 5, 7]), np.array([1.0, 4.0, 9.0]), 0.5)
    assert term.places.tolist() == [5, 7]
    error = term.add_to(np.zeros(8), np.zeros(8))
    assert error == pytest.approx(4 * 3**2 / (12 * 127**2) * (1 + 4 + 9) * 0.5, rel=1e-4)


@pytest.mark.parametrize("kind", ["activation", "weights"])
def test_derivatives(kind: str):
    term: _Term = (
        _rounded_weights([[2, 1], [1.9, 4]])
        if kind == "weights"
        else _Activation(np.array([0, 1]), _seen([8, 7.5], [-0.5, -1]), np.array([3.0, 1.0]))
    )
    at = np.array([0.05, -0.02])
    gradient = np.zeros(2)
    term.add_to(at, gradient)
    for i in range(2):
        ends = [term.add_to(at + s * 1e-5 * np.eye(2)[i], np.zeros(2)) for s in (1, -1)]
        assert gradient[i] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5)


def test_least_error_of_two_channels_by_hand():
    """With equal ranges of 8 and 2, the second divisor is a quarter of the first."""
    term = _Activation(np.array([0, 1]), _seen([8, 2], [0, 0]), np.array([1.0, 1.0]))
    low, high = np.array([0.0, -10.0]), np.array([0.0, 10.0])
    best = _minimized([term], low, high)
    assert best[0] == 0
    # The smooth maximum of two equal numbers is 3 % larger, so the optimum is a bit above.
    assert best[1] == pytest.approx(-np.log(4), abs=0.12)


def test_rows_of_a_flattened_image_share_their_scale(data):
    graph = MATCHES["flattened"]
    after = apply("equalize_ranges", graph, data=data)
    assert after.matched == 1
    spreads = []
    for one in (graph, after.graph):
        channels = peaks(one, "flat").reshape(-1, 8).max(axis=0)
        spreads.append(channels.max() / channels.min())
    assert spreads[1] < spreads[0] / 5


def test_few_samples_do_not_show_the_ranges_of_a_dense_layer(tmp_path):
    graph = Graph(
        [
            placeholder(),
            const("w", normal(6, 4) * [1, 0.1, 0.01, 1]),
            node("hidden", "MatMul", "x w"),
            node("act", "Relu", "hidden"),
            const("v", normal(4, 3, seed=1)),
            node("out", "MatMul", "act v"),
        ]
    )
    matched = []
    for samples in (1023, 1024):
        path = tmp_path / f"{samples}.npz"
        np.savez(path, x=normal(samples, 6, seed=2))
        result = apply("equalize_ranges", graph, data=str(path), samples=samples)
        matched.append(result.matched)
    assert matched == [0, 1]
