"""QuantizeV2. Expected values are those of TensorFlow 1.15 and 2.21."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32
from tests.ops.quantized_graphs import run_quantized

SHAPES = [
    shapes("QuantizeV2", [(2, -1), (), ()], [(2, -1), (), ()]),
    shapes("QuantizeV2", [None, (), ()], [None, (), ()]),
    shapes("QuantizeV2", [(2, 3), (2,), (2,)], [(2, 3), (2,), (2,)], axis=0),
    shapes("QuantizeV2", [(2, 3), (3,), (3,)], [(2, 3), (3,), (3,)], axis=1),
    shapes("QuantizeV2", [(2, 3), (2,), (2,)], None, axis=1),
    shapes("QuantizeV2", [(2, 3), (2,), (2,)], None, axis=2),
    shapes("QuantizeV2", [(2, 3), (), ()], None, axis=0),
]

COSTS = [cost("QuantizeV2", [(2, 3), (), ()], [(2, 3), (), ()], 30)]

QUINT8, QINT8, QINT32 = DType.QUINT8, DType.QINT8, DType.QINT32
X = f32(-2, -1, -0.4, 0, 0.3, 0.5, 1, 3)

EXPECTED = {
    (QUINT8, "MIN_COMBINED"): [0, 0, 51, 85, 110, 128, 170, 255],
    (QUINT8, "MIN_FIRST"): [0, 0, 51, 85, 111, 128, 170, 255],
    (QUINT8, "SCALED"): [0, 0, 0, 0, 38, 64, 128, 255],
    (QINT8, "MIN_COMBINED"): [-128, -128, -77, -43, -18, -1, 42, 127],
    (QINT8, "MIN_FIRST"): [-128, -128, -77, -43, -17, 0, 42, 127],
    (QINT8, "SCALED"): [-127, -64, -25, 0, 19, 32, 64, 127],
    (DType.QUINT16, "MIN_COMBINED"): [0, 0, 13107, 21845, 28398, 32768, 43690, 65535],
    (DType.QUINT16, "MIN_FIRST"): [0, 0, 13107, 21845, 28399, 32768, 43690, 65535],
    (DType.QUINT16, "SCALED"): [0, 0, 0, 0, 9830, 16384, 32768, 65535],
    (DType.QINT16, "MIN_COMBINED"): [-32768, -32768, -19661, -10923, -4370, -1, 10922, 32767],
    (DType.QINT16, "MIN_FIRST"): [-32768, -32768, -19661, -10923, -4369, 0, 10922, 32767],
    (DType.QINT16, "SCALED"): [-32767, -16384, -6553, 0, 4915, 8192, 16384, 32767],
    (QINT32, "MIN_COMBINED"): [
        *(-(2**31), -(2**31), -1288490112, -715827840, -286331136, 0, 715827968, -(2**31)),
    ],
    (QINT32, "MIN_FIRST"): [
        *(-(2**31), -(2**31), -1288490240, -715827840, -286331072, 64, 715827968, 2147483520),
    ],
    (QINT32, "SCALED"): [
        *(-(2**31), -1073741824, -429496736, 0, 322122560, 536870912, 1073741824, -(2**31)),
    ],
}


def quantize(x: np.ndarray, *ends: np.ndarray, **attrs: Any) -> list[np.ndarray]:
    return run_quantized("QuantizeV2", x, *ends, **{"T": QUINT8, **attrs})


@pytest.mark.parametrize(("dtype", "mode"), EXPECTED)
def test_modes_and_dtypes(dtype: DType, mode: str) -> None:
    out, low, high = quantize(X, f32(-1), f32(2), T=dtype, mode=mode)
    assert out.dtype == dtype.numpy
    assert out.tolist() == EXPECTED[dtype, mode]
    if mode != "SCALED":
        assert (low, high) == (-1, 2)


def test_scaled_range_is_symmetric() -> None:
    _, low, high = quantize(X, f32(-1), f32(2), T=QINT8, mode="SCALED")
    assert (low, high) == (np.float32(-2.0157480), 2)
    _, low, high = quantize(X, f32(-1), f32(2), T=QINT8, mode="SCALED", narrow_range=True)
    assert (low, high) == (-2, 2)


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [("HALF_AWAY_FROM_ZERO", [1, 2, 3, -1, -2]), ("HALF_TO_EVEN", [0, 2, 2, 0, -2])],
)
def test_round_mode(rounding: str, expected: list[int]) -> None:
    halves = np.float32([0.5, 1.5, 2.5, -0.5, -1.5]) / np.float32(127)
    attrs = {"T": QINT8, "mode": "SCALED", "narrow_range": True, "round_mode": rounding}
    out, *_ = quantize(halves, f32(-1), f32(1), **attrs)
    assert out.tolist() == expected


def test_range_is_widened_to_include_zero() -> None:
    out, low, high = quantize(f32(5, 5.02), f32(5), f32(5), mode="MIN_FIRST")
    assert (out.tolist(), low, high) == ([255, 255], 0, 5)
    _, low, high = quantize(f32(0, 0), f32(0), f32(0), mode="MIN_FIRST")
    assert (low, high) == (0, np.float32(0.01))


def test_nan_and_infinities() -> None:
    x = f32(np.nan, np.inf, -np.inf)
    for dtype, expected in ((QUINT8, [0, 255, 0]), (QINT8, [0, 127, -128])):
        for mode in ("MIN_COMBINED", "MIN_FIRST"):
            out, *_ = quantize(x, f32(-1), f32(1), T=dtype, mode=mode)
            assert out.tolist() == expected


def test_ranges_per_axis() -> None:
    x = f32([[1, 1], [1, 1]])
    out, low, high = quantize(x, f32(0, 0), f32(1, 2), mode="SCALED", axis=0)
    assert out.tolist() == [[255, 255], [128, 128]]
    assert (low.tolist(), high.tolist()) == ([0, 0], [1, 2])


def test_single_slice_has_a_scalar_range() -> None:
    out, low, _ = quantize(f32([[1, 0]]), f32([0]), f32([1]), mode="MIN_FIRST", axis=0)
    assert out.tolist() == [[255, 0]]
    assert low.shape == ()


def test_empty_tensor_and_scalar() -> None:
    for shape in ((0, 3), ()):
        out, *_ = quantize(np.zeros(shape, np.float32), f32(0), f32(1))
        assert out.shape == shape


@pytest.mark.parametrize(
    ("ends", "attrs", "error"),
    [
        ((f32(1), f32(0)), {}, InvalidGraphError),
        ((f32(0, 0), f32(1, 1)), {}, InvalidGraphError),
        ((f32(0, 0), f32(1, 1)), {"axis": 0, "mode": "SCALED"}, InvalidGraphError),
        ((f32(0), f32(1)), {"axis": 1, "mode": "SCALED"}, InvalidGraphError),
        ((f32(0), f32(1)), {"axis": -2}, InvalidGraphError),
        ((f32(0), f32(1)), {"mode": "ODD"}, InvalidGraphError),
        ((f32(0), f32(1)), {"round_mode": "HALF_TO_EVEN"}, InvalidGraphError),
        (
            (np.zeros(8, np.float32), np.ones(8, np.float32)),
            {"axis": 0, "mode": "MIN_FIRST"},
            UnsupportedError,
        ),
        ((f32(0), f32(1)), {"T": DType.INT8}, UnsupportedError),
    ],
)
def test_invalid_arguments_are_refused(ends: tuple, attrs: dict, error: type[Exception]) -> None:
    with pytest.raises(error, match="'y'"):
        quantize(X, *ends, **attrs)


test_shapes_and_costs = case_tests(SHAPES, COSTS)
