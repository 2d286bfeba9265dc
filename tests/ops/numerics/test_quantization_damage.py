"""Quantization error metrics, computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mobileprep.ops.numerics.differences import (
    HEALTHY_RMSE,
    Damage,
    DamageSum,
    Grid,
)


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
