"""Shapes and costs of quantized convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32, i32
from tests.ops.quantized_graphs import run_quantized

TWO = {"strides": (1, 2, 2, 1), "padding": "SAME"}
IMAGE, BANK, DEPTHWISE = (4, 9, 8, 3), (3, 2, 3, 8), (3, 2, 3, 2)
RANGES = [(), (), (), ()]
EACH = [(), (), (8,), (8,)]
PLAIN, WITH_BIAS = "QuantizedConv2D", "QuantizedConv2DWithBias"
EACH_CHANNEL = "QuantizedDepthwiseConv2D"
OUT = (4, 5, 4, 8)

SHAPES = [
    shapes(PLAIN, [IMAGE, BANK, *RANGES], [OUT, (), ()], **TWO),
    shapes(PLAIN, [(4, 9, 8, 4), BANK, *RANGES], None, **TWO),
    shapes(
        "QuantizedDepthwiseConv2D", [IMAGE, DEPTHWISE, *RANGES], [(4, 5, 4, 6), None, None], **TWO
    ),
    *(
        shapes(f"{PLAIN}{ending}", [IMAGE, BANK, *RANGES], [OUT, (), ()], **TWO)
        for ending in ("AndRelu", "PerChannel")
    ),
    *(
        shapes(f"{PLAIN}{ending}", [IMAGE, BANK, *EACH], [OUT, (8,), (8,)], **TWO)
        for ending in ("AndRelu", "PerChannel")
    ),
    shapes(f"{PLAIN}PerChannel", [IMAGE, BANK, (), (), (-1,), (8,)], [OUT, (8,), (8,)], **TWO),
    *(
        shapes(f"{WITH_BIAS}{ending}", [IMAGE, BANK, (8,), *EACH], [OUT, (8,), (8,)], **TWO)
        for ending in ("", "AndRelu")
    ),
    *(
        shapes(f"{PLAIN}{ending}", [IMAGE, BANK, *RANGES, (), ()], [OUT, (), ()], **TWO)
        for ending in ("AndRequantize", "AndReluAndRequantize")
    ),
    *(
        shapes(f"{WITH_BIAS}{ending}", [IMAGE, BANK, (8,), *EACH, (), ()], [OUT, (), ()], **TWO)
        for ending in ("AndRequantize", "AndReluAndRequantize")
    ),
]

COSTS = [
    cost(PLAIN, [IMAGE, BANK, *RANGES], [OUT, (), ()], 2 * 18 * 640),
    cost(EACH_CHANNEL, [IMAGE, DEPTHWISE, *RANGES], [(4, 5, 4, 6), (), ()], 12 * 480),
]


TURNED = {"transpose_a": True, "transpose_b": True}

SHAPES += [
    shapes("QuantizedMatMul", [(2, 3), (3, 4), *RANGES], [(2, 4), (), ()]),
    shapes("QuantizedMatMul", [(3, 2), (4, 3), *RANGES], [(2, 4), (), ()], **TURNED),
    shapes("QuantizedMatMul", [(2, 3), (5, 4), *RANGES], None),
]

COSTS += [
    cost("QuantizedMatMul", [(2, 3), (3, 4), *RANGES], [(2, 4), (), ()], 48),
    cost("QuantizedMatMul", [(3, 2), (4, 3), *RANGES], [(2, 4), (), ()], 48, **TURNED),
]


QUINT8, QINT8, QINT32 = DType.QUINT8, DType.QINT8, DType.QINT32
# Ranges in which each integer is its own value.
BYTES = (f32(0), f32(255))
CENTERED = (f32(-128), f32(127))
CONV = {"Tinput": QUINT8, "Tfilter": QUINT8, "out_type": QINT32, "strides": [1, 1, 1, 1]}
MATMUL = {"T1": QUINT8, "T2": QUINT8, "Toutput": QINT32}
SQUARE = np.array([[1, 2], [3, 4]], np.uint8)
PRODUCTS_IMAGE, FILTER = SQUARE.reshape(1, 2, 2, 1), SQUARE.reshape(2, 2, 1, 1)


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
        "QuantizedConv2D", PRODUCTS_IMAGE, FILTER, *CENTERED, *BYTES, **CONV, padding="SAME"
    )
    plain = PRODUCTS_IMAGE[0, :, :, 0].astype(np.int32) - 128
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
        *(PRODUCTS_IMAGE, FILTER, f32(ends[0]), f32(ends[1]), f32(0), f32(1)),
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
        (PRODUCTS_IMAGE, FILTER, {"strides": [1, 1, 2, 1]}, UnsupportedError),
        (PRODUCTS_IMAGE, FILTER, {"dilations": [1, 2, 2, 1]}, UnsupportedError),
        (PRODUCTS_IMAGE, FILTER, {"strides": [2, 1, 1, 1]}, InvalidGraphError),
        (PRODUCTS_IMAGE, FILTER, {"strides": [1, 0, 0, 1]}, InvalidGraphError),
        (PRODUCTS_IMAGE, FILTER, {"strides": [1, 1]}, InvalidGraphError),
        (PRODUCTS_IMAGE, FILTER, {"padding": "EXPLICIT"}, InvalidGraphError),
        (PRODUCTS_IMAGE, np.ones((3, 3, 1, 1), np.uint8), {}, InvalidGraphError),
        (PRODUCTS_IMAGE, np.ones((1, 1, 2, 1), np.uint8), {}, InvalidGraphError),
        (PRODUCTS_IMAGE[0], FILTER, {}, InvalidGraphError),
        (PRODUCTS_IMAGE, FILTER, {"out_type": QUINT8}, UnsupportedError),
    ],
)
def test_invalid_convolution_is_refused(x, filters, attrs, error) -> None:
    with pytest.raises(error, match="'y'"):
        run_quantized(
            "QuantizedConv2D",
            *(x, filters, *BYTES, *BYTES),
            **{**CONV, "padding": "VALID", **attrs},
        )


POOLING_TWO = {"ksize": (1, 3, 2, 1), "strides": (1, 2, 3, 1), "padding": "VALID"}
POOLS = ["QuantizedMaxPool", "QuantizedAvgPool"]

SHAPES += [
    *(shapes(op, [(4, 9, 8, 3), (), ()], [(4, 4, 3, 3), (), ()], **POOLING_TWO) for op in POOLS),
    *(shapes(op, [(9, 8, 3), (), ()], None, **POOLING_TWO) for op in POOLS),
]

COSTS += [
    cost(op, [(4, 9, 8, 3), (), ()], [(4, 4, 3, 3), (), ()], 6 * 144, **POOLING_TWO) for op in POOLS
]


UNIT = (f32(-1), f32(1))
THREE = np.array([0, 128, 255], np.uint8)
POOL = {"strides": [1, 1, 1, 1], "padding": "SAME"}
LAYERS_IMAGE = np.array([[1, 2, 4], [5, 6, 7]], np.uint8).reshape(1, 2, 3, 1)


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
        "QuantizedAvgPool", LAYERS_IMAGE, *UNIT, T=QUINT8, ksize=[1, 2, 2, 1], **POOL
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
    out, *_ = run_quantized(
        "QuantizedMaxPool", LAYERS_IMAGE, *UNIT, T=QUINT8, ksize=[1, 2, 2, 1], **POOL
    )
    assert out[0, :, :, 0].tolist() == [[6, 7, 7], [6, 7, 7]]
    lowest = np.full((1, 1, 1, 1), -128, np.int8)
    out, *_ = run_quantized("QuantizedMaxPool", lowest, *UNIT, T=QINT8, ksize=[1, 3, 3, 1], **POOL)
    assert out.tolist() == [[[[-128]]]]


@pytest.mark.parametrize("size", [[1, 2, 2], [1, 2, 2, 2], [1, 0, 1, 1], [1, 2**31 - 1, 9, 1]])
def test_invalid_windows_are_refused(size: list[int]) -> None:
    with pytest.raises(InvalidGraphError, match="'y'"):
        run_quantized(
            "QuantizedAvgPool",
            *(LAYERS_IMAGE, *UNIT),
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
        resize(LAYERS_IMAGE, size)


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


test_shapes_and_costs = case_tests(SHAPES, COSTS)
