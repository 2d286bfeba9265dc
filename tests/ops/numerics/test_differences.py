"""Differences between two results."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from mobileprep.errors import AccuracyError
from mobileprep.formats.dtypes import DType
from mobileprep.ops.numerics.differences import (
    HEALTHY_RMSE,
    Damage,
    DamageSum,
    Grid,
    difference,
    edges,
    escaped,
    largest_difference,
    not_finite,
    shown_difference,
    summary,
)
from mobileprep.ops.numerics.texts import as_texts


@pytest.mark.parametrize(
    ("expected", "result", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([1.0, math.nan], [1.5, math.nan], 0.5),
        ([math.inf, 1.0], [math.inf, 1.0], 0.0),
        ([1.0], [math.nan], math.inf),
        ([1.0], [math.inf], math.inf),
        ([math.inf], [-math.inf], math.inf),
        ([], [], 0.0),
        ([1 + 1j], [1 + 2j], 1.0),
    ],
)
def test_largest_difference(expected: list, result: list, difference: float) -> None:
    assert largest_difference(np.array(expected), np.array(result), "out") == difference


def test_difference_of_unsigned_integers() -> None:
    a, b = np.array([0], np.uint8), np.array([255], np.uint8)
    assert largest_difference(a, b, "out") == 255


def test_difference_of_strings_is_a_share() -> None:
    a = np.array([b"a", b"b", b"c", b"d"], object)
    b = np.array([b"a", b"x", b"c", b"d"], object)
    assert largest_difference(a, b, "out") == 0.25


def test_different_shapes_are_an_error() -> None:
    with pytest.raises(AccuracyError, match="has the shape"):
        largest_difference(np.zeros(2), np.zeros((2, 1)), "out")


def test_difference_is_shown_with_two_digits() -> None:
    assert shown_difference(0.0123456) == 0.012
    assert shown_difference(0.0) == 0.0


@pytest.mark.parametrize(
    ("expected", "result", "is_source_lost"),
    [
        ([math.nan, 1], [0, 1], True),
        ([math.nan, 1], [0, math.inf], False),
        ([2, 1], [2, math.nan], False),
        ([math.inf, 1], [-math.inf, 1], True),
    ],
)
def test_side_with_nan_or_infinity_is_named(
    expected: list, result: list, is_source_lost: bool
) -> None:
    gap = difference("y", [np.array(expected, float)], [np.array(result, float)])
    assert (math.isinf(gap.share), gap.is_source_lost) == (True, is_source_lost)
    fed = {"keep": np.float32(0).reshape(()), "x": np.array([[1, -2.5]])}
    text = not_finite(gap, "after optimize", [fed], "").message
    assert ("the samples are unusable" in text) == is_source_lost
    assert text.endswith("fed: keep [] of 0, x [1, 2] from -2.5 to 1") == is_source_lost
    assert ("after optimize the output 'y' is NaN or infinite" in text) != is_source_lost


def grid(low: float, high: float, steps: int) -> Grid:
    return Grid(np.asarray(low), np.asarray(high), np.asarray((high - low) / steps))


def damage(expected: list, result: list, grid_: Grid | None = None) -> Damage:
    sums = DamageSum()
    sums.add(np.array(expected, np.float32), np.array(result, np.float32), grid_)
    return sums.damage()


def test_sqnr_and_cosine() -> None:
    result = damage([3.0, 4.0], [3.0, 4.5])
    assert result.elements == 2
    assert result.sqnr == pytest.approx(20.0)  # 25 over 0.25
    assert result.cosine == pytest.approx((9 + 18) / (5 * math.hypot(3, 4.5)))
    assert result.clipped is result.rmse_over_scale is None


def test_clipped_share_and_rmse_over_scale() -> None:
    result = damage([0.0, 1.2, 2.4, 2.6], [0.0, 1.0, 2.0, 2.0], grid(0, 2, 2))
    assert result.clipped == 0.25
    assert result.rmse_over_scale == pytest.approx(math.sqrt((0.04 + 0.16 + 0.36) / 4))


def test_rmse_over_scale_per_channel() -> None:
    scale = np.array([0.1, 10.0])
    by_channel = Grid(-127 * scale, 127 * scale, scale)
    result = damage([[0.0, 5.0], [0.05, 0.0]], [[0.0, 0.0], [0.0, 0.0]], by_channel)
    assert result.rmse_over_scale == pytest.approx(math.sqrt((0.25 + 0.25) / 4))


def test_rmse_of_rounding_is_one_over_sqrt_12() -> None:
    values = np.random.default_rng(0).uniform(-1, 1, 200_000).astype(np.float32)
    scale = 2 / 255
    sums = DamageSum()
    sums.add(values, np.round(values / scale) * scale, grid(-1, 1, 255))
    # The standard error of the mean square of this many uniform errors is below 0.2 %.
    assert sums.damage().rmse_over_scale == pytest.approx(HEALTHY_RMSE, rel=0.005)
    assert pytest.approx(0.289, abs=0.0005) == HEALTHY_RMSE


def test_damage_adds_up_over_arrays() -> None:
    generator = np.random.default_rng(1)
    values = generator.normal(size=150_000).astype(np.float32)
    noise = values + generator.normal(scale=0.01, size=values.size).astype(np.float32)
    whole, parts = DamageSum(), DamageSum()
    whole.add(values, noise)
    for x, y in zip(np.array_split(values, 7), np.array_split(noise, 7), strict=True):
        parts.add(x.reshape(1, -1, 1), y.reshape(1, -1, 1))
    # The order of the sums differs.
    assert parts.damage().sqnr == pytest.approx(whole.damage().sqnr, rel=1e-9)


@pytest.mark.parametrize(
    ("expected", "result", "sqnr", "cosine"),
    [
        ([1.0, 2.0], [1.0, 2.0], 200, 1.0),
        ([0.0], [0.0], 200, 1.0),
        ([], [], 200, 1.0),
        ([0.0], [1.0], -200, 0.0),
        ([1e-30], [1e30], -200, 1.0),
        ([1.0], [math.nan], -200, 0.0),
        ([math.inf], [1.0], -200, 0.0),
    ],
)
def test_sqnr_and_cosine_of_special_values(
    expected: list, result: list, sqnr: float, cosine: float
) -> None:
    with np.errstate(invalid="ignore"):
        metrics = damage(expected, result)
    assert metrics.sqnr == sqnr
    assert metrics.cosine == pytest.approx(cosine)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-20.887871, "-20.8878708"),
        (22.25, "22.25"),
        (0.1, "0.1"),
        (1 / 3, "0.333333343"),
        (1e5, "100000"),
        (1e6, "1e+06"),
        (1234567, "1234567"),
        (1e10, "1e+10"),
        (1e-5, "1e-05"),
        (-0.0, "-0"),
        (-1e-40, "-0"),
        (np.inf, "inf"),
        (-np.nan, "-nan"),
    ],
)
def test_float32_has_six_to_nine_digits(value: float, text: str) -> None:
    assert summary(np.array(value, np.float32), DType.FLOAT, 3) == text


@pytest.mark.parametrize(
    ("array", "dtype", "text"),
    [
        (np.array([1 / 3, 1e10]), DType.DOUBLE, "0.33333333333333331 10000000000"),
        (np.array([0.1], np.float16), DType.HALF, "0.0999755859"),
        (np.array([0.1], ml_dtypes.bfloat16), DType.BFLOAT16, "0.100097656"),
        (np.array([2**64 - 1], np.uint64), DType.UINT64, "18446744073709551615"),
        (np.array([200], np.uint8), DType.QUINT8, "200"),
        (np.array([7], np.int32), DType.QINT32, "?"),
        (np.array([True, False]), DType.BOOL, "1 0"),
        (np.array([1 + 2j]), DType.COMPLEX128, "?"),
        (as_texts([b'a"\n\\\x00\xff'], (1,)), DType.STRING, 'a\\"\\n\\\\\\000\\377'),
    ],
)
def test_summary_of_every_dtype(array: np.ndarray, dtype: DType, text: str) -> None:
    assert summary(array, dtype, -1) == text


@pytest.mark.parametrize(
    ("shape", "count", "text"),
    [
        ((), 0, "..."),
        ((), 1, "0"),
        ((0,), 3, ""),
        ((3, 0), 3, ""),
        ((4,), 2, "0 1..."),
        ((2, 3), 0, "..."),
        ((2, 3), 2, "[0 1...]..."),
        ((2, 3), 3, "[0 1 2]..."),
        ((2, 3), 4, "[0 1 2][3...]..."),
        ((2, 3), -1, "[0 1 2][3 4 5]"),
        ((2, 1, 2, 2), 5, "[[[0 1][2 3]]][[[4...]]]..."),
    ],
)
def test_summary_of_rows(shape: tuple[int, ...], count: int, text: str) -> None:
    array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    assert summary(array, DType.INT32, count) == text


@pytest.mark.parametrize(
    ("shape", "count", "text"),
    [
        ((), 0, "..."),
        ((), 3, "0"),
        ((0,), 3, "[]"),
        ((7,), 3, "[0 1 2 ... 4 5 6]"),
        ((7,), 0, "[ ...]"),
        ((2, 3), 1, "[[0 ... 2]\n [3 ... 5]]"),
        ((2, 3), 0, "[\n ...]"),
        ((3, 0), 3, "[\n ...]"),
        ((1, 2, 2), -1, "[[[0 1]\n  [2 3]]]"),
        ((2, 1, 1), 3, "[[[0]]\n\n [[1]]]"),
    ],
)
def test_edges_of_rows(shape: tuple[int, ...], count: int, text: str) -> None:
    array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    assert edges(array, DType.INT32, count) == text


def test_edges_quote_strings() -> None:
    assert edges(as_texts([b"a'", b"\t"], (2,)), DType.STRING, 3) == '["a\\\'" "\\t"]'
    assert edges(np.array([1j, 2, 3]), DType.COMPLEX128, 2) == "[? ?...]"


def test_strings_are_escaped_like_c() -> None:
    assert escaped("é\x7f'".encode()) == "\\303\\251\\177\\'"
