"""MIN_FIRST quantization to 8 bits, compared with TensorFlow's formula."""

import math

import numpy as np
import pytest

from mobileprep.ops.numerics.quantization import to_quint8


def _round(value: float) -> float:
    """Round half away from zero, like C."""
    whole = math.trunc(value)
    return whole + math.copysign(1, value) if abs(value - whole) >= 0.5 else whole


def _expected(value: np.float32, low: np.float32, high: np.float32) -> int:
    scale = 256 / (float(high - low) * (256 / 255.0))
    return int(min(max(_round(float(value) * scale) - _round(float(low) * scale), 0), 255))


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-1, 1), (-0.3, 2.7), (-5, 1.2e-38), (-1e-20, 3e20), (0, 255)]
)
def test_result_matches_the_formula(low, high):
    low, high = np.float32(low), np.float32(high)
    rng = np.random.default_rng(3)
    values = rng.uniform(low, high, 3000).astype(np.float32)
    values = np.concatenate([values, [low, high, 0, low - 1, high + 1]]).astype(np.float32)
    expected = [_expected(v, low, high) for v in values]
    assert to_quint8(values, low, high).tolist() == expected


def test_halves_are_rounded_away_from_zero():
    low, high = np.float32(-128), np.float32(127)
    halves = np.array([-2.5, -0.5, 0.5, 1.5, 2.5], np.float32)
    assert (to_quint8(halves, low, high) - 128).astype(np.int8).tolist() == [-3, -1, 1, 2, 3]
    below = np.nextafter(halves, np.float32(0))
    assert (to_quint8(below, low, high) - 128).astype(np.int8).tolist() == [-2, 0, 0, 1, 2]


def test_shape_is_preserved_across_blocks():
    values = np.linspace(0, 1, 3 * 50_000, dtype=np.float32).reshape(3, 50_000)
    numbers = to_quint8(values, np.float32(0), np.float32(1))
    assert numbers.shape == values.shape
    assert (np.diff(numbers.ravel().astype(int)) >= 0).all()
    assert (numbers.min(), numbers.max()) == (0, 255)


def test_empty_input():
    assert to_quint8(np.empty((0, 3), np.float32), np.float32(0), np.float32(1)).shape == (0, 3)
