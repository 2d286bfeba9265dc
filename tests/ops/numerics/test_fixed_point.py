"""Requantization of int32 to quint8."""

from __future__ import annotations

import numpy as np

from mobileprep.ops.numerics.integer_products import to_quint8
from mobileprep.ops.numerics.quantization import Limits


def limits(low: float, high: float) -> Limits:
    return Limits(np.float32(low), np.float32(high))


def test_values_are_rounded_to_nearest() -> None:
    x = np.array([-1_000_000, -1, 0, 1, 1_000_000, 2_000_000], np.int32)
    result = to_quint8(x, limits(-1000, 1000), limits(-0.5, 1))
    assert result.tolist() == [6, 85, 85, 85, 164, 243]


def test_values_are_clipped_to_the_range() -> None:
    x = np.array([-(10**8), 10**8], np.int32)
    assert to_quint8(x, limits(-1000, 1000), limits(-0.5, 1)).tolist() == [0, 255]


def test_64_bit_overflow_wraps_like_tensorflow() -> None:
    x = np.array([-(2**31), 2**31 - 1], np.int32)
    with np.errstate(all="ignore"):
        assert to_quint8(x, limits(-1000, 1000), limits(-0.5, 1)).tolist() == [255, 0]


def test_empty_range_gives_zeros() -> None:
    x = np.array([-5, 0, 5], np.int32)
    assert to_quint8(x, limits(-1, 1), limits(0, 0)).tolist() == [0, 0, 0]


def test_result_is_independent_of_blocks() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(-(2**20), 2**20, (40, 50, 60), dtype=np.int32)
    whole = to_quint8(x, limits(-1000, 1000), limits(-0.5, 1))
    rows = [to_quint8(row, limits(-1000, 1000), limits(-0.5, 1)) for row in x]
    np.testing.assert_array_equal(whole, np.stack(rows))
    assert to_quint8(x[:0], limits(-1, 1), limits(0, 1)).shape == (0, 50, 60)


def test_error_is_about_half_a_step() -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(-(2**21), 2**21, 10_000, dtype=np.int32)
    result = to_quint8(x, limits(-1000, 1000), limits(-0.5, 1)).astype(np.float64)
    exact = np.clip((x * (2000 / 2**32) + 0.5) * 255 / 1.5, 0, 255)
    assert np.abs(result - exact).max() < 0.51
