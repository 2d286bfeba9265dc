"""Conversion between quantized integers and floats."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.node import Node
from mobileprep.ops.kernel import call_kernel, find_kernel
from mobileprep.ops.numerics import quantization as clipping
from mobileprep.ops.numerics.integer_products import to_quint8
from mobileprep.ops.numerics.quantization import (
    EVERY_BYTE,
    Dequantizer,
    Limits,
    Quantizer,
    clipped,
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


@pytest.mark.parametrize("block", [3, 1 << 16])
def test_clipping_in_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipping, "_BLOCK", block)
    x = np.array([[-np.inf, -1, 0, 1], [6, 7, np.inf, np.nan]], np.float32)
    expected = np.array([[0, 0, 0, 1], [6, 6, 6, np.nan]])
    np.testing.assert_array_equal(clipped(x, 0, 6), expected)
    np.testing.assert_array_equal(clipped(x.T, 0, 6), expected.T)
    assert x[0, 1] == -1


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int32, np.uint8, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("op", "most"), [("Relu", 9), ("Relu6", 6)])
def test_activations_of_every_dtype(op: str, most: int, kind: type) -> None:
    kernel = find_kernel(op)
    assert kernel is not None
    node = Node("y", op, attrs={"T": attr.dtype(DType.FLOAT)})
    (y,) = call_kernel(kernel, node, [np.array([0, 3, 9]).astype(kind)])
    assert (y.dtype, y.tolist()) == (np.dtype(kind), [0, 3, most])


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


OF = Limits(np.float32(-1), np.float32(2))


def test_round_trip_error_is_half_a_step() -> None:
    x = np.linspace(-1, 2, 70_000, dtype=np.float32).reshape(-1, 7, 1)
    back = Dequantizer.of(OF, UINT8)(Quantizer.of(OF, UINT8)(x))
    assert back.shape == x.shape
    assert np.abs(back - x).max() <= 3 / 255 / 2 * 1.001


def test_round_trip_of_zero() -> None:
    for kind in (UINT8, INT8, INT32):
        zero = Quantizer.of(OF, kind)(np.zeros(1, np.float32))
        assert abs(Dequantizer.of(OF, kind)(zero).item()) < 1e-7


def test_linear_quantization_values_are_clipped_to_the_range() -> None:
    x = np.array([-9, 9, -np.inf, np.inf], np.float32)
    assert Quantizer.of(OF, INT8)(x).tolist() == [-128, 127, -128, 127]


def test_int32_maximum_is_the_largest_float32_below_2_to_the_31() -> None:
    assert Quantizer.of(OF, INT32)(np.array([2], np.float32)).tolist() == [2147483520]


@pytest.mark.parametrize(("kind", "expected"), [(UINT8, 0), (INT8, 0), (INT32, -(2**31))])
def test_nan_is_quantized_to_low_bits_of_the_lowest_integer(kind: np.dtype, expected: int) -> None:
    with np.errstate(all="ignore"):
        assert Quantizer.of(OF, kind)(np.array([np.nan], np.float32)).tolist() == [expected]


def test_empty_range() -> None:
    of = Limits(np.float32(3), np.float32(3))
    assert Dequantizer.of(of, UINT8)(np.array([0, 9, 255], np.uint8)).tolist() == [3, 3, 3]
    assert Quantizer.of(of, UINT8)(np.array([1, 3], np.float32)).tolist() == [0, 0]


def test_input_is_not_modified() -> None:
    x = np.ones(5, np.float32)
    Quantizer.of(OF, UINT8)(x)
    assert x.tolist() == [1] * 5
