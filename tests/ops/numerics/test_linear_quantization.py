"""Linear quantization in float32."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.ops.numerics.quantization import Dequantizer, Limits, Quantizer

UINT8, INT8, INT32 = np.dtype(np.uint8), np.dtype(np.int8), np.dtype(np.int32)
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


def test_values_are_clipped_to_the_range() -> None:
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
