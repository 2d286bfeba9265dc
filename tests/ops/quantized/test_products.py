"""Quantized products and convolutions. Expected values without a comment are TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from tests.ops.graphs import f32
from tests.ops.quantized_graphs import run_quantized

QUINT8, QINT8, QINT32 = DType.QUINT8, DType.QINT8, DType.QINT32
# Ranges in which each integer is its own value.
BYTES = (f32(0), f32(255))
CENTERED = (f32(-128), f32(127))
CONV = {"Tinput": QUINT8, "Tfilter": QUINT8, "out_type": QINT32, "strides": [1, 1, 1, 1]}
MATMUL = {"T1": QUINT8, "T2": QUINT8, "Toutput": QINT32}
SQUARE = np.array([[1, 2], [3, 4]], np.uint8)
IMAGE, FILTER = SQUARE.reshape(1, 2, 2, 1), SQUARE.reshape(2, 2, 1, 1)


def bytes_of(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_mat_mul_subtracts_zero_points(turned: tuple[bool, bool]) -> None:
    lhs, rhs = bytes_of(0, 5, 7), bytes_of(1, 7, 3)
    x, y = lhs.T if turned[0] else lhs, rhs.T if turned[1] else rhs
    attrs = {**MATMUL, "transpose_a": turned[0], "transpose_b": turned[1]}
    out, *_ = run_quantized("QuantizedMatMul", x, y, *BYTES, *CENTERED, **attrs)
    np.testing.assert_array_equal(out, lhs.astype(np.int32) @ (rhs.astype(np.int32) - 128))


def test_mat_mul_output_range() -> None:
    _, low, high = run_quantized("QuantizedMatMul", SQUARE, SQUARE, *BYTES, *BYTES, **MATMUL)
    assert (low, high) == (-(2.0**31), 2.0**31)
    unit = f32(0), f32(1)
    _, low, high = run_quantized("QuantizedMatMul", SQUARE, SQUARE, *unit, *unit, **MATMUL)
    assert (low, high) == (np.float32(-33025.512), np.float32(33025.512))


@pytest.mark.parametrize(
    ("x", "y", "ends"),
    [
        (SQUARE, bytes_of(0, 3, 2), BYTES),
        (SQUARE[0], SQUARE, BYTES),
        (SQUARE, SQUARE, (f32(1), f32(1))),
        (SQUARE, SQUARE, (f32(2), f32(1))),
        (SQUARE, SQUARE, (f32(np.nan), f32(1))),
        (SQUARE, SQUARE, (f32(0, 0), f32(1, 1))),
        (np.zeros((1 << 17, 1), np.uint8), np.zeros((1, 1 << 17), np.uint8), BYTES),
    ],
)
def test_invalid_mat_mul_is_refused(x, y, ends) -> None:
    with pytest.raises(InvalidGraphError, match="'y'"):
        run_quantized("QuantizedMatMul", x, y, *ends, *BYTES, **MATMUL)


def test_padding_is_zero() -> None:
    out, *_ = run_quantized(
        "QuantizedConv2D", IMAGE, FILTER, *CENTERED, *BYTES, **CONV, padding="SAME"
    )
    plain = IMAGE[0, :, :, 0].astype(np.int32) - 128
    padded = np.pad(plain, ((0, 1), (0, 1)))
    expected = [
        [(padded[r : r + 2, c : c + 2] * SQUARE.astype(np.int32)).sum() for c in (0, 1)]
        for r in (0, 1)
    ]
    assert out[0, :, :, 0].tolist() == expected


@pytest.mark.parametrize(
    ("ends", "expected"),
    [((-5, -3), [[-6350, -5610], [-5487, -5242]]), ((1, 2), [[2580, 1034], [776, 259]])],
)
def test_padding_with_zero_point_outside_the_type(
    ends: tuple[float, float], expected: list
) -> None:
    out, *_ = run_quantized(
        "QuantizedConv2D",
        *(IMAGE, FILTER, f32(ends[0]), f32(ends[1]), f32(0), f32(1)),
        **{**CONV, "padding": "SAME"},
    )
    assert out[0, :, :, 0].tolist() == expected


def test_strides_larger_than_the_filter() -> None:
    """A filter of one element and a stride of 3 on 6 columns: the second and the fifth."""
    x, filters = np.arange(6, dtype=np.uint8).reshape(1, 1, 6, 1), np.ones((1, 1, 1, 1), np.uint8)
    out, *_ = run_quantized(
        "QuantizedConv2D",
        *(x, filters, *BYTES, *BYTES),
        **{**CONV, "strides": [1, 3, 3, 1], "padding": "SAME"},
    )
    assert out.ravel().tolist() == [1, 4]


def test_signed_filters() -> None:
    filters = np.arange(-1, 3, dtype=np.int8).reshape(2, 2, 1, 1)
    x = np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1)
    attrs = {**CONV, "Tfilter": QINT8, "padding": "VALID"}
    ends = (f32(-1), f32(1), f32(-2), f32(1))
    out, low, high = run_quantized("QuantizedConv2D", x, filters, *ends, **attrs)
    assert out.ravel().tolist() == [14, 16, 18, 22, 24, 26, 30, 32, 34]
    assert (low, high) == (np.float32(-198933.19), np.float32(198933.19))
    out, *_ = run_quantized("QuantizedConv2D", x, filters, *ends, **attrs, dilations=[1, 2, 2, 1])
    assert out.ravel().tolist() == [28, 30, 36, 38]


def test_depthwise_convolution() -> None:
    x = np.arange(32, dtype=np.uint8).reshape(1, 4, 4, 2)
    filters = np.arange(-2, 14, dtype=np.int8).reshape(2, 2, 2, 2)
    attrs = {**CONV, "Tfilter": QINT8, "padding": "VALID"}
    ends = (f32(0), f32(1), f32(-1), f32(1))
    out, low, high = run_quantized("QuantizedDepthwiseConv2D", x, filters, *ends, **attrs)
    assert out.shape == (1, 3, 3, 4)
    assert out.ravel()[:8].tolist() == [152, 172, 216, 240, 184, 212, 264, 296]
    assert (low, high) == (np.float32(-66311.06), np.float32(66311.06))


def test_large_depthwise_convolution_is_exact() -> None:
    x, filters = np.full((1, 40, 40, 1), 255, np.uint8), np.full((40, 40, 1, 1), -127, np.int8)
    attrs = {**CONV, "Tfilter": QINT8, "padding": "VALID"}
    out, *_ = run_quantized("QuantizedDepthwiseConv2D", x, filters, *BYTES, *CENTERED, **attrs)
    assert out.tolist() == [[[[-255 * 127 * 1600]]]]


@pytest.mark.parametrize(
    ("x", "filters", "attrs", "error"),
    [
        (IMAGE, FILTER, {"strides": [1, 1, 2, 1]}, UnsupportedError),
        (IMAGE, FILTER, {"dilations": [1, 2, 2, 1]}, UnsupportedError),
        (IMAGE, FILTER, {"strides": [2, 1, 1, 1]}, InvalidGraphError),
        (IMAGE, FILTER, {"strides": [1, 0, 0, 1]}, InvalidGraphError),
        (IMAGE, FILTER, {"strides": [1, 1]}, InvalidGraphError),
        (IMAGE, FILTER, {"padding": "EXPLICIT"}, InvalidGraphError),
        (IMAGE, np.ones((3, 3, 1, 1), np.uint8), {}, InvalidGraphError),
        (IMAGE, np.ones((1, 1, 2, 1), np.uint8), {}, InvalidGraphError),
        (IMAGE[0], FILTER, {}, InvalidGraphError),
        (IMAGE, FILTER, {"out_type": QUINT8}, UnsupportedError),
    ],
)
def test_invalid_convolution_is_refused(x, filters, attrs, error) -> None:
    with pytest.raises(error, match="'y'"):
        run_quantized(
            "QuantizedConv2D",
            *(x, filters, *BYTES, *BYTES),
            **{**CONV, "padding": "VALID", **attrs},
        )
