"""Conversion between quantized integers and floats."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.ops.numerics.quantization import (
    EVERY_BYTE,
    Limits,
    flushed,
    level,
    looked_up,
    offset_of_zero,
    round_half_away,
    rounded,
    steps_of,
    through_int32,
    to_floats,
    to_integer,
    to_integers,
    wrapped,
)

UINT8, INT8, INT32 = np.dtype(np.uint8), np.dtype(np.int8), np.dtype(np.int32)


def limits(low: float, high: float) -> Limits:
    return Limits(np.float32(low), np.float32(high))


def test_halves_are_rounded_away_from_zero() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -2.5, 2.4, -2.6], np.float32)
    assert round_half_away(x).tolist() == [1, 2, 3, -1, -3, 2, -3]
    assert [rounded(v) for v in (0.5, 2.5, -0.5, -2.5)] == [1, 3, -1, -3]


@pytest.mark.parametrize("below", [np.nextafter(np.float32(0.5), np.float32(0)), 0.49999997])
def test_value_just_below_a_half_is_rounded_to_zero(below: float) -> None:
    assert round_half_away(np.array([below], np.float32)).tolist() == [0]
    assert rounded(0.49999999999999994) == 0


def test_integers_beyond_the_mantissa_are_exact() -> None:
    large = np.array([8388609, 16777217, -8388611], np.float32)
    assert round_half_away(large.copy()).tolist() == large.tolist()
    # In float32, adding one half to this number gives the next one.
    assert rounded(np.float32(8388609)) == 8388609


def test_range_ends_are_the_type_limits() -> None:
    of = limits(-1, 3)
    assert [to_integer(v, of, UINT8) for v in (-1, 3, -9, 9)] == [0, 255, 0, 255]
    assert [to_integer(v, of, INT8) for v in (-1, 3)] == [-128, 127]
    assert to_integers(np.array([-1.0, 3.0]), of, INT32).tolist() == [-(2**31), 2**31 - 1]


def test_empty_range_gives_the_lowest_integer() -> None:
    assert level(7.0, limits(2, 2), UINT8) == 0
    assert to_floats(np.array([0, 255], np.uint8), limits(2, 2)).tolist() == [2, 2]


def test_zero_point_can_be_outside_the_type() -> None:
    assert offset_of_zero(limits(-1, 1), UINT8) == 128
    assert offset_of_zero(limits(1, 2), UINT8) == -255
    assert offset_of_zero(limits(-5, -3), UINT8) == 638


def test_level_of_nan_is_the_lowest_int64() -> None:
    with np.errstate(all="ignore"):
        assert level(1.0, limits(0, np.nan), UINT8) == -(2**63)
        assert to_integer(np.nan, limits(0, 1), UINT8) == 0


def test_floats_are_aligned_to_zero() -> None:
    """The low end is rounded to a multiple of a step, so that 0.0 is exact."""
    result = to_floats(np.array([0, 1, 128, 255], np.uint8), limits(-1, 2))
    expected = np.float32([-1.0, -0.9882353, 0.5058824, 2.0])
    np.testing.assert_array_equal(result, expected)


def test_wrapped_drops_high_bits() -> None:
    assert wrapped(2**31, 32) == -(2**31)
    assert wrapped(-(2**31) - 1, 32) == 2**31 - 1
    assert wrapped(5, 32) == 5


def test_denormals_are_flushed_to_zero() -> None:
    result = flushed(np.array([1e-40, -1e-40, 1e-30, np.nan], np.float32))
    np.testing.assert_array_equal(result, np.float32([0, -0.0, 1e-30, np.nan]))
    assert np.signbit(result[1])


def test_through_int32_wraps_the_highest_integers() -> None:
    result = through_int32(np.array([2**31 - 1, 2**31 - 200, -(2**31), 5], np.int32))
    assert result.tolist() == [-(2.0**31), 2.0**31 - 256, -(2.0**31), 5]


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_lookup_by_index_bits(kind: type) -> None:
    table = EVERY_BYTE.view(kind).astype(np.int32) * 3
    rng = np.random.default_rng(0)
    values = rng.integers(0, 256, (300, 400), dtype=np.uint8).view(kind)
    np.testing.assert_array_equal(looked_up(table, values), values.astype(np.int32) * 3)
    np.testing.assert_array_equal(looked_up(table, values.T), values.T.astype(np.int32) * 3)


def test_lookup_of_empty_tensor_and_scalar() -> None:
    table = EVERY_BYTE.astype(np.int32)
    assert looked_up(table, np.zeros((0, 3), np.uint8)).shape == (0, 3)
    assert looked_up(table, np.asarray(np.uint8(9))).tolist() == 9


def test_steps_of_a_type() -> None:
    assert steps_of(INT8).lowest == -128
    assert steps_of(INT32).count == 2**32
