"""Network layers: convolution, pooling, normalization, and recurrent cells."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.ops.numerics.windows import Window
from tests.ops import naive
from tests.ops.graphs import f32, i32, run, run_all

RNG = np.random.default_rng(9)
SAME: dict[str, Any] = {"strides": [1, 1, 1, 1], "padding": "SAME"}
THREE = Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))


def normal(*shape: int, kind: Any = np.float32) -> np.ndarray:
    return RNG.normal(size=shape).astype(kind)


def test_nchw_matches_nhwc() -> None:
    x, filters, own = normal(2, 5, 6, 3), normal(3, 3, 3, 4), normal(3, 3, 3, 2)
    turned = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    for op, bank in (("Conv2D", filters), ("DepthwiseConv2dNative", own)):
        last = run(op, x, bank, strides=[1, 2, 1, 1], padding="SAME")
        first = run(op, turned, bank, strides=[1, 1, 2, 1], padding="SAME", data_format="NCHW")
        np.testing.assert_allclose(first.transpose(0, 2, 3, 1), last, atol=1e-5)
    for op in ("MaxPool", "AvgPool"):
        last = run(op, x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
        window = {"ksize": [1, 1, 2, 2], "strides": [1, 1, 2, 2]}
        first = run(op, turned, **window, padding="SAME", data_format="NCHW")
        np.testing.assert_allclose(first.transpose(0, 2, 3, 1), last, atol=1e-6)


@pytest.mark.parametrize("kind", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_convolution_of_other_dtypes(kind: type) -> None:
    x, filters = normal(1, 5, 5, 2, kind=kind), normal(3, 3, 2, 3, kind=kind)
    out = run("Conv2D", x, filters, **SAME)
    assert out.dtype == np.dtype(kind)
    expected = naive.convolution(x.astype(np.float64), filters.astype(np.float64), THREE)
    bound = {8: 1e-12, 2: 0.05}[np.dtype(kind).itemsize]
    np.testing.assert_allclose(out.astype(np.float64), expected, atol=bound * 5)


@pytest.mark.parametrize(
    ("x", "filters", "attrs", "message"),
    [
        (normal(5, 5, 3), normal(3, 3, 3, 4), SAME, "need 4 axes"),
        (normal(1, 5, 5, 3), normal(3, 3, 2, 4), SAME, "3 channels do not fit"),
        (normal(1, 5, 5, 3), normal(3, 3, 3, 4), {**SAME, "strides": [1, 0, 1, 1]}, "strides"),
        (normal(1, 5, 5, 3), normal(3, 3, 3, 4), {**SAME, "strides": [2, 1, 1, 1]}, "along batch"),
        (normal(1, 5, 5, 3), normal(3, 3, 3, 4), {**SAME, "padding": "MAYBE"}, "unknown padding"),
        (
            normal(1, 2, 2, 3),
            normal(3, 3, 3, 4),
            {**SAME, "padding": "VALID"},
            "does not fit into 2",
        ),
    ],
)
def test_invalid_convolution_names_the_node(x, filters, attrs, message) -> None:
    with pytest.raises(InvalidGraphError, match=rf"'y' \(Conv2D\).*{message}"):
        run("Conv2D", x, filters, **attrs)


def test_transposed_convolution() -> None:
    filters = f32(range(4)).reshape(2, 2, 1, 1)
    y, attrs = f32([[[[1], [0]], [[0], [10]]]]), {**SAME, "strides": [1, 2, 2, 1]}
    out = run("Conv2DBackpropInput", i32(1, 4, 4, 1), filters, y, **attrs)
    np.testing.assert_array_equal(
        out[0, :, :, 0], [[0, 1, 0, 0], [2, 3, 0, 0], [0, 0, 0, 10], [0, 0, 20, 30]]
    )


def test_transposed_convolution_with_size_of_two_axes() -> None:
    filters, y = normal(2, 2, 3, 4), normal(2, 3, 3, 4)
    attrs = {"strides": [1, 2, 2, 1], "padding": "VALID"}
    whole = run("Conv2DBackpropInput", i32(2, 6, 6, 3), filters, y, **attrs)
    short = run("Conv2DBackpropInput", i32(6, 6), filters, y, **attrs)
    np.testing.assert_array_equal(short, whole)


def test_dilation() -> None:
    x = f32([[0, 1], [5, 2]]).reshape(1, 2, 2, 1)
    filters = f32([[0, 10], [1, 2]]).reshape(2, 2, 1)
    window = {"strides": [1, 1, 1, 1], "rates": [1, 1, 1, 1]}
    out = run("Dilation2D", x, filters, **window, padding="VALID")
    assert out.ravel().tolist() == [11]
    out = run("Dilation2D", x, filters, **window, padding="SAME")
    np.testing.assert_array_equal(out[0, :, :, 0], [[11, 3], [12, 2]])


def test_max_pool_with_argmax() -> None:
    x = f32([[1, 9, 2], [3, 4, -1], [0, 0, -2]]).reshape(1, 3, 3, 1)
    window = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    values, places = run_all("MaxPoolWithArgmax", x, **window)
    assert (values.ravel().tolist(), places.ravel().tolist()) == ([9, 2, 0, -2], [1, 2, 6, 8])


def test_extract_image_patches() -> None:
    x = f32(range(9)).reshape(1, 3, 3, 1)
    window = {"ksizes": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "rates": [1, 1, 1, 1]}
    out = run("ExtractImagePatches", x, **window, padding="VALID")
    assert out[0, 1, 1].tolist() == [4, 5, 7, 8]


@pytest.mark.parametrize("op", ["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"])
def test_batch_norm_in_inference(op: str) -> None:
    x = f32([1, 2, 3, 4]).reshape(1, 2, 1, 2)
    parts = (f32(2, 1), f32(0.5, 0), f32(1, 2), f32(3, 0))
    out = run(op, x, *parts, is_training=False, epsilon=1.0, U=np.float32)
    np.testing.assert_allclose(out.ravel(), [0.5, 0, 2.5, 2])


def test_batch_norm_in_training() -> None:
    x = normal(4, 3, 3, 2)
    empty = np.zeros(0, np.float32)
    y, mean, variance, *_ = run_all(
        "FusedBatchNorm", x, f32(1, 1), f32(0, 0), empty, empty, epsilon=0.0
    )
    np.testing.assert_allclose(mean, x.mean(axis=(0, 1, 2)), rtol=1e-5)
    np.testing.assert_allclose(variance, x.var(axis=(0, 1, 2), ddof=1), rtol=1e-5)
    np.testing.assert_allclose(y.std(axis=(0, 1, 2)), [1, 1], rtol=1e-5)


def test_batch_norm_with_global_normalization() -> None:
    x = f32([4, 8]).reshape(1, 1, 1, 2)
    parts = (f32(2, 2), f32(4, 4), f32(1, 1), f32(3, 3))
    attrs = {"variance_epsilon": 0.0}
    scaled = run(
        "BatchNormWithGlobalNormalization", x, *parts, **attrs, scale_after_normalization=True
    )
    assert scaled.ravel().tolist() == [4, 10]
    plain = run(
        "BatchNormWithGlobalNormalization", x, *parts, **attrs, scale_after_normalization=False
    )
    assert plain.ravel().tolist() == [2, 4]


def test_lrn() -> None:
    x = f32([1, 2, 3]).reshape(1, 1, 1, 3)
    out = run("LRN", x, depth_radius=1, bias=1.0, alpha=1.0, beta=1.0)
    np.testing.assert_allclose(out.ravel(), [1 / 6, 2 / 15, 3 / 14], rtol=1e-6)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@pytest.mark.parametrize("peephole", [False, True])
def test_lstm_cell(peephole: bool) -> None:
    w = f32([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]])
    x, state, hidden, bias = f32([[2]]), f32([[0.5]]), f32([[-1]]), f32(0, 0.1, 0.2, 0.3)
    peepholes = f32([0.3]), f32([0.2]), f32([0.1])
    parts = (x, state, hidden, w, *peepholes, bias)
    i, ci, f, o = (2 * a - b + c for a, b, c in zip(w[0], w[1], (0, 0.1, 0.2, 0.3), strict=True))
    if peephole:
        i, f = i + 0.5 * 0.3, f + 0.5 * 0.2
    new_state = sigmoid(i) * math.tanh(ci) + 0.5 * sigmoid(f + 1)
    o += 0.1 * new_state if peephole else 0
    out = run_all("LSTMBlockCell", *parts, use_peephole=peephole)
    assert [float(a[0, 0]) for a in out] == pytest.approx(
        [
            sigmoid(i),
            new_state,
            sigmoid(f + 1),
            sigmoid(o),
            math.tanh(ci),
            math.tanh(new_state),
            sigmoid(o) * math.tanh(new_state),
        ],
        rel=1e-6,
    )


def test_block_lstm_matches_its_steps() -> None:
    w, b, peepholes = normal(5, 8), normal(8), (normal(2), normal(2), normal(2))
    x, state, hidden = normal(4, 3, 3), normal(3, 2), normal(3, 2)
    whole = run_all("BlockLSTM", np.int64(3), x, state, hidden, w, *peepholes, b)
    for t in range(3):
        step = run_all("LSTMBlockCell", x[t], state, hidden, w, *peepholes, b)
        for ours, expected in zip(whole, step, strict=True):
            np.testing.assert_allclose(ours[t], expected, rtol=1e-6)
        state, hidden = step[1], step[6]
    assert not whole[6][3].any()


def test_gru_cell() -> None:
    x, h = f32([[1]]), f32([[0.5]])
    w_ru, w_c = f32([[0.1, 0.2], [0.3, 0.4]]), f32([[0.5], [0.6]])
    out = run_all("GRUBlockCell", x, h, w_ru, w_c, f32(0.1, 0.2), f32([0.3]))
    r, u = sigmoid(0.1 + 0.15 + 0.1), sigmoid(0.2 + 0.2 + 0.2)
    cell = math.tanh(0.5 + 0.6 * 0.5 * r + 0.3)
    expected = [r, u, cell, u * 0.5 + (1 - u) * cell]
    assert [float(a[0, 0]) for a in out] == pytest.approx(expected, rel=1e-6)


def test_ctc_greedy_decoder() -> None:
    # Classes by step: a a blank a b, and for the second entry b only.
    best = [[0, 1], [0, 2], [2, 0], [0, 0], [1, 0]]
    logits = np.eye(3, dtype=np.float32)[best]
    indices, values, shape, score = run_all(
        "CTCGreedyDecoder", logits, i32(5, 2), merge_repeated=True
    )
    assert indices.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0]]
    assert (values.tolist(), shape.tolist(), score.tolist()) == ([0, 0, 1, 1], [2, 3], [[-5], [-2]])
    _, values, *_ = run_all("CTCGreedyDecoder", logits, i32(5, 2))
    assert values.tolist() == [0, 0, 0, 1, 1]


def test_cross_entropies() -> None:
    features = f32([[0, math.log(3)]])
    loss, gradient = run_all("SparseSoftmaxCrossEntropyWithLogits", features, i32([1]))
    assert float(loss[0]) == pytest.approx(-math.log(0.75), rel=1e-6)
    np.testing.assert_allclose(gradient, [[0.25, -0.25]], rtol=1e-6)
    dense, _ = run_all("SoftmaxCrossEntropyWithLogits", features, f32([[0.5, 0.5]]))
    assert float(dense[0]) == pytest.approx(-0.5 * math.log(0.75 * 0.25), rel=1e-6)
    with pytest.raises(InvalidGraphError, match="index 2"):
        run_all("SparseSoftmaxCrossEntropyWithLogits", features, i32([2]))


def test_fused_conv_and_mat_mul_match_their_parts() -> None:
    x, filters, bias = normal(1, 5, 5, 2), normal(3, 3, 2, 3), normal(3)
    fusion = {"TArgs": [DType.FLOAT], "num_args": 1, "fused_ops": ["BiasAdd", "LeakyRelu"]}
    out = run(
        "_FusedConv2D", x, filters, bias, **SAME, **fusion, num_host_args=0, leakyrelu_alpha=0.5
    )
    plain = naive.convolution(x, filters, THREE) + bias
    np.testing.assert_allclose(out, np.where(plain > 0, plain, plain / 2), atol=1e-5)
    a, b = normal(2, 4), normal(4, 3)
    out = run("_FusedMatMul", a, b, bias, num_args=1, fused_ops=["BiasAdd", "Tanh"])
    np.testing.assert_allclose(out, np.tanh(a @ b + bias), atol=1e-6)
    with pytest.raises(InvalidGraphError, match="the fused op 'Swirl' is not known"):
        run("_FusedMatMul", a, b, bias, num_args=1, fused_ops=["Swirl"])


def test_fused_depthwise_conv_and_batch_norm_match_their_parts() -> None:
    x, own, bias = normal(1, 5, 5, 2), normal(3, 3, 2, 2), normal(4)
    fusion = {"num_args": 1, "fused_ops": ["BiasAdd", "Relu6"]}
    out = run("_FusedDepthwiseConv2dNative", x, own, bias, **SAME, **fusion)
    plain = naive.depthwise(x, own, THREE) + bias
    np.testing.assert_allclose(out, np.clip(plain, 0, 6), atol=1e-5)
    side = normal(1, 5, 5, 2)
    parts = (f32(2, 1), f32(0.5, 0), f32(1, 2), f32(3, 0))
    mode = {"is_training": False, "epsilon": 1.0, "activation_mode": "Relu", "num_side_inputs": 1}
    out = run("_FusedBatchNormEx", x, *parts, side, **mode, U=np.float32)
    alone = run("FusedBatchNormV3", x, *parts, is_training=False, epsilon=1.0, U=np.float32)
    np.testing.assert_allclose(out, np.maximum(alone + side, 0), atol=1e-6)


def test_fused_pad_conv() -> None:
    x, filters = normal(1, 4, 4, 2), normal(3, 3, 2, 3)
    paddings = i32([[0, 0], [1, 1], [1, 1], [0, 0]])
    attrs = {"strides": [1, 1, 1, 1], "padding": "VALID", "mode": "SYMMETRIC"}
    out = run("FusedPadConv2D", x, paddings, filters, **attrs)
    bare = Window((3, 3), (1, 1), (1, 1), ((0, 0), (0, 0)))
    wide = np.pad(x, paddings, mode="symmetric")
    np.testing.assert_allclose(out, naive.convolution(wide, filters, bare), atol=1e-5)
