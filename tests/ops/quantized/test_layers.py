"""Quantized activations, pooling, concatenation, resizing, and normalization.

Expected values without a comment are those of TensorFlow 1.15 and 2.21.
"""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from tests.ops.graphs import f32, i32
from tests.ops.quantized_graphs import run_quantized

QUINT8, QINT8, QINT32 = DType.QUINT8, DType.QINT8, DType.QINT32
UNIT = (f32(-1), f32(1))
THREE = np.array([0, 128, 255], np.uint8)
POOL = {"strides": [1, 1, 1, 1], "padding": "SAME"}
IMAGE = np.array([[1, 2, 4], [5, 6, 7]], np.uint8).reshape(1, 2, 3, 1)


def relu(op: str, x: np.ndarray, *ends: np.ndarray) -> list:
    dtype = QUINT8 if x.dtype == np.uint8 else QINT32
    out, low, high = run_quantized(op, x, *ends, Tinput=dtype, out_type=dtype)
    assert (low, high) == ends
    return out.tolist()


def test_relu_and_relu6() -> None:
    x = np.array([0, 50, 100, 200, 255], np.uint8)
    assert relu("QuantizedRelu", x, f32(-100), f32(155)) == [100, 100, 100, 200, 255]
    assert relu("QuantizedRelu6", x, f32(-100), f32(155)) == [100, 100, 100, 106, 106]
    assert relu("QuantizedRelu6", x, f32(-1), f32(1)) == [128, 128, 128, 200, 255]


def test_relu_of_int32() -> None:
    x = np.array([-5, 5], np.int32)
    assert relu("QuantizedRelu", x, *UNIT) == [0, 5]


def test_relu_of_int8_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="qint8"):
        run_quantized("QuantizedRelu", THREE.view(np.int8), *UNIT, Tinput=QINT8, out_type=QINT8)


def test_avg_pool_truncates_and_ignores_padding() -> None:
    out, low, high = run_quantized(
        "QuantizedAvgPool", IMAGE, *UNIT, T=QUINT8, ksize=[1, 2, 2, 1], **POOL
    )
    assert out[0, :, :, 0].tolist() == [[3, 4, 5], [5, 6, 7]]
    assert (low, high) == UNIT


def test_avg_pool_of_negative_integers_truncates_toward_zero() -> None:
    x = np.array([-1, -2, -2, -2], np.int8).reshape(1, 2, 2, 1)
    attrs = {"T": QINT8, "ksize": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "padding": "VALID"}
    assert run_quantized("QuantizedAvgPool", x, *UNIT, **attrs)[0].ravel().tolist() == [-1]


def test_avg_pool_of_large_window_is_exact() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (1, 90, 80, 3), dtype=np.uint8)
    attrs = {"T": QUINT8, "ksize": [1, 90, 80, 1], "strides": [1, 1, 1, 1], "padding": "VALID"}
    out, *_ = run_quantized("QuantizedAvgPool", x, *UNIT, **attrs)
    assert out.ravel().tolist() == (x.astype(np.int64).sum((0, 1, 2)) // 7200).tolist()


def test_max_pool() -> None:
    out, *_ = run_quantized("QuantizedMaxPool", IMAGE, *UNIT, T=QUINT8, ksize=[1, 2, 2, 1], **POOL)
    assert out[0, :, :, 0].tolist() == [[6, 7, 7], [6, 7, 7]]
    lowest = np.full((1, 1, 1, 1), -128, np.int8)
    out, *_ = run_quantized("QuantizedMaxPool", lowest, *UNIT, T=QINT8, ksize=[1, 3, 3, 1], **POOL)
    assert out.tolist() == [[[[-128]]]]


@pytest.mark.parametrize("size", [[1, 2, 2], [1, 2, 2, 2], [1, 0, 1, 1], [1, 2**31 - 1, 9, 1]])
def test_invalid_windows_are_refused(size: list[int]) -> None:
    with pytest.raises(InvalidGraphError, match="'y'"):
        run_quantized(
            "QuantizedAvgPool",
            *(IMAGE, *UNIT),
            **{"T": QUINT8, "ksize": size, **POOL, "padding": "VALID"},
        )


def concat(parts: list[np.ndarray], ranges: list[tuple[float, float]], axis: int = 0, **attrs):
    lows, highs = zip(*ranges, strict=True)
    ends = (*map(f32, lows), *map(f32, highs))
    return run_quantized("QuantizedConcat", i32(axis), *parts, *ends, N=len(parts), **attrs)


def test_concat_of_unsigned_tensors() -> None:
    out, low, high = concat([THREE, THREE], [(-1, 1), (0, 3)], T=QUINT8)
    assert out.tolist() == [0, 64, 128, 64, 160, 255]
    assert (low, high) == (-1, 3)


def test_concat_of_signed_tensors_has_a_symmetric_range() -> None:
    parts = [np.array([-100000, 5], np.int32), np.array([100000], np.int32)]
    out, low, high = concat(parts, [(-1, 1), (0, 3)], T=QINT32)
    assert out.tolist() == [-33333, 2, 1073791872]
    assert (low, high) == (-3, 3)


def test_concat_of_equal_ranges() -> None:
    out, low, high = concat([THREE, THREE], [(-1, 1), (-1, 1)], T=QUINT8)
    assert out.tolist() == [0, 128, 255] * 2
    assert (low, high) == UNIT


def test_concat_after_empty_tensor_has_the_original_bug() -> None:
    out, low, high = concat([THREE[:0], THREE], [(-1, 1), (0, 3)], T=QUINT8)
    assert out.tolist() == [0, 64, 128]
    assert (low, high) == (-1, 3)


@pytest.mark.parametrize("axis", [-1, 1])
def test_invalid_concat_axis_is_refused(axis: int) -> None:
    with pytest.raises(InvalidGraphError, match="axis"):
        concat([THREE, THREE], [(-1, 1), (0, 3)], axis, T=QUINT8)


def test_concat_v2_starts_unsigned_ranges_at_zero() -> None:
    parts = np.array([[0, 40, 80]], np.uint8), np.array([[0, 40, 80]], np.uint8)
    ends = (f32(-0.5), f32(0), f32(1), f32(2))
    out, low, high = run_quantized("QuantizedConcatV2", *parts, i32(-1), *ends, T=QUINT8, N=2)
    assert out.tolist() == [[0, 0, 0, 0, 40, 80]]
    assert (low, high) == (0, 2)


def test_reshape_keeps_the_range() -> None:
    out, low, high = run_quantized("QuantizedReshape", THREE, i32([3, -1]), *UNIT, T=QUINT8)
    assert out.tolist() == [[0], [128], [255]]
    assert (low, high) == UNIT


def resize(images: np.ndarray, size: list[int], **attrs) -> list:
    dtype = QUINT8 if images.dtype == np.uint8 else QINT32
    out, low, high = run_quantized(
        "QuantizedResizeBilinear", images, i32(size), *UNIT, T=dtype, **attrs
    )
    assert (low, high) == UNIT
    return out[0, :, :, 0].tolist()


def test_resize_in_fixed_point() -> None:
    image = np.array([[0, 255], [100, 10]], np.uint8).reshape(1, 2, 2, 1)
    expected = [[0, 128, 255, 255], [66, 80, 92, 92], [100, 55, 10, 10]]
    assert resize(image, [3, 4]) == expected
    assert resize(image, [2, 2]) == image[0, :, :, 0].tolist()


def test_resize_of_int32() -> None:
    image = np.array([[0, 1000], [-100000, 10]], np.int32).reshape(1, 2, 2, 1)
    expected = [[0, 250, 750, 1000], [-49999, -37373, -12120, 505], [-99999, -74997, -24992, 10]]
    assert resize(image, [3, 4], half_pixel_centers=True) == expected


@pytest.mark.parametrize("size", [[0, 2], [2], [2**31 - 1, 2**31 - 1]])
def test_invalid_sizes_are_refused(size: list[int]) -> None:
    with pytest.raises(InvalidGraphError, match="'y'"):
        resize(IMAGE, size)


def test_instance_norm() -> None:
    x = np.array([0, 50, 100, 250], np.uint8).reshape(1, 2, 2, 1)
    attrs = {"T": QUINT8, "variance_epsilon": 1e-5, "min_separation": 1e-3}
    out, low, high = run_quantized("QuantizedInstanceNorm", x, f32(0), f32(10), **attrs)
    assert out.ravel().tolist() == [0, 51, 102, 255]
    assert (low, high) == (np.float32(-1.0690447), np.float32(1.603567))


def test_instance_norm_of_constant_has_min_separation() -> None:
    attrs = {"T": QUINT8, "variance_epsilon": 1e-5, "min_separation": 0.5}
    x = np.full((1, 2, 2, 1), 7, np.uint8)
    _, low, high = run_quantized("QuantizedInstanceNorm", x, f32(0), f32(10), **attrs)
    assert (low, high) == (0, 0.5)


def test_batch_norm_in_fixed_point() -> None:
    x = np.array([[[[0, 128], [255, 10]]]], np.uint8)
    statistics = []
    for values, low, high in (
        ([10, 200], -1, 1),
        ([100, 200], 0, 4),
        ([0, 255], -1, 1),
        ([128, 255], 0, 2),
    ):
        statistics += [np.array(values, np.uint8), f32(low), f32(high)]
    attrs = {"variance_epsilon": 0.001, "scale_after_normalization": True}
    out, low, high = run_quantized(
        "QuantizedBatchNormWithGlobalNormalization",
        *(x, *UNIT, *statistics),
        **{"Tinput": QUINT8, "out_type": QINT32, **attrs},
    )
    assert out.ravel().tolist() == [-2168, 750, 1113, -1389]
    assert (low, high) == (-(2.0**20), 2.0**20)


def test_invalid_statistics_are_refused() -> None:
    x, few = np.zeros((1, 1, 1, 2), np.uint8), np.zeros(1, np.uint8)
    attrs = {"variance_epsilon": 0.001, "scale_after_normalization": True}
    with pytest.raises(InvalidGraphError, match="statistics"):
        run_quantized(
            "QuantizedBatchNormWithGlobalNormalization",
            *(x, *UNIT, *(few, *UNIT) * 4),
            **{"Tinput": QUINT8, "out_type": QINT32, **attrs},
        )


@pytest.mark.parametrize("ends", [(f32(0, 0), f32(1, 1)), (f32([]), f32([]))])
def test_range_ends_must_be_scalars(ends: tuple) -> None:
    with pytest.raises(InvalidGraphError, match="one number"):
        run_quantized("QuantizedRelu", THREE, *ends, Tinput=QUINT8, out_type=QUINT8)
