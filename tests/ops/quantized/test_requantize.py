"""Requantization of int32 to 8 bits. Expected values without a comment are TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32
from tests.ops.quantized_graphs import run_quantized

SHRINK = "QuantizeDownAndShrinkRange"

SHAPES = [
    shapes("Requantize", [(2, -1), (), (), (), ()], [(2, -1), (), ()]),
    shapes("RequantizationRange", [(2, -1), (), ()], [(), ()]),
    shapes(SHRINK, [(2, -1), (), ()], [(2, -1), (), ()]),
]

COSTS = [
    cost("Requantize", [(2, 3), (), (), (), ()], [(2, 3), (), ()], 18),
    cost("RequantizationRange", [(2, 3), (), ()], [(), ()], 12),
    cost(SHRINK, [(2, 3), (), ()], [(2, 3), (), ()], 30),
]

QUINT8, QINT8, QINT32 = DType.QUINT8, DType.QINT8, DType.QINT32
SUMS = np.array([-(2**31), -(10**6), -1, 0, 1, 10**6, 2 * 10**6, 2**31 - 1], np.int32)
LARGE = (f32(-1000), f32(1000))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        # Products beyond 64 bits wrap.
        (QUINT8, [255, 6, 85, 85, 85, 164, 243, 0]),
        (QINT8, [-128, -122, -43, -43, -43, 36, 115, 127]),
    ],
)
def test_requantize(dtype: DType, expected: list[int]) -> None:
    out, low, high = run_quantized(
        "Requantize", SUMS, *LARGE, f32(-0.5), f32(1), Tinput=QINT32, out_type=dtype
    )
    assert out.dtype == dtype.numpy
    assert out.tolist() == expected
    assert (low, high) == (-0.5, 1)


@pytest.mark.parametrize("output_range", [(0.5, 1), (-1, -2), (np.nan, 1)])
def test_invalid_output_range_is_refused(output_range: tuple[float, float]) -> None:
    with pytest.raises(InvalidGraphError, match="'y' is to give the range"):
        run_quantized(
            "Requantize", SUMS, *LARGE, *map(f32, output_range), Tinput=QINT32, out_type=QUINT8
        )


def test_unsupported_output_type_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="put out quint16"):
        run_quantized("Requantize", SUMS, *LARGE, *LARGE, Tinput=QINT32, out_type=DType.QUINT16)


def test_requantization_range_includes_zero() -> None:
    sums = np.array([-(10**6), 5 * 10**6], np.int32)
    low, high = run_quantized("RequantizationRange", sums, *LARGE, Tinput=QINT32)
    assert (low, high) == (np.float32(-0.46566105), np.float32(2.3283067))
    low, high = run_quantized("RequantizationRange", sums[1:], *LARGE, Tinput=QINT32)
    assert (low, high) == (0, np.float32(2.3283067))


def test_requantization_range_of_empty_tensor() -> None:
    low, high = run_quantized("RequantizationRange", SUMS[:0], *LARGE, Tinput=QINT32)
    assert (low, high) == (0, -1000)


def test_quantize_down_and_shrink_range() -> None:
    sums = np.array([-(10**6), 0, 10**6, 5 * 10**6], np.int32)
    out, low, high = run_quantized(
        "QuantizeDownAndShrinkRange", sums, *LARGE, Tinput=QINT32, out_type=QUINT8
    )
    assert out.tolist() == [0, 42, 85, 255]
    assert (low, high) == (np.float32(-0.46566105), np.float32(2.3283067))


CHANNELS = np.array([[-8, -7, -6], [7, 6, 5]], np.int32).reshape(1, 1, 2, 3) * 10**8
LOWS, HIGHS = f32(-1, -1, -2), f32(1, 2, 3)


def range_per_channel(x: np.ndarray, limit: float) -> list[np.ndarray]:
    attrs = {"T": QINT32, "clip_value_max": limit}
    return run_quantized("RequantizationRangePerChannel", x, LOWS, HIGHS, **attrs)


def test_range_per_channel() -> None:
    low, high = range_per_channel(CHANNELS, 1e9)
    assert high == np.float32(3 * np.float32(6e8) / np.float32(2**31))
    assert low == -high
    assert range_per_channel(CHANNELS, 0.5) == [-0.5, 0.5]


def test_range_per_channel_of_positive_values_starts_at_zero() -> None:
    assert range_per_channel(CHANNELS[:, :, 1:], 9.0)[0] == 0


def test_requantize_per_channel() -> None:
    out, low, high = run_quantized(
        "RequantizePerChannel", CHANNELS, LOWS, HIGHS, f32(-1), f32(1), T=QINT32, out_type=QINT8
    )
    exact = CHANNELS.astype(np.float64) * [1, 2, 3] / 2**31 * 127
    assert out.tolist() == np.clip(np.rint(exact), -128, 127).tolist()
    assert (low, high) == (-1, 1)


@pytest.mark.parametrize(
    ("x", "ends", "dtype"),
    [
        (CHANNELS[0], (f32(-1), f32(1)), QINT8),
        (CHANNELS, (f32(0), f32(1)), QINT8),
        (CHANNELS, (f32(-1, -1), f32(1, 1)), QINT8),
    ],
)
def test_invalid_channels_or_ranges_are_refused(x, ends, dtype) -> None:
    with pytest.raises(InvalidGraphError, match="'y'"):
        run_quantized("RequantizePerChannel", x, LOWS, HIGHS, *ends, T=QINT32, out_type=dtype)


test_shapes_and_costs = case_tests(SHAPES, COSTS)
