"""Signal to noise and its kin, worked out by hand."""

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


def damage(expected: list, found: list, on: Grid | None = None) -> Damage:
    sums = DamageSum()
    sums.add(np.array(expected, np.float32), np.array(found, np.float32), on)
    return sums.damage()


def test_signal_to_noise_is_in_decibels_and_the_cosine_that_of_the_vectors() -> None:
    found = damage([3.0, 4.0], [3.0, 4.5])
    assert found.elements == 2
    assert found.sqnr == pytest.approx(20.0)  # 25 over 0.25
    assert found.cosine == pytest.approx((9 + 18) / (5 * math.hypot(3, 4.5)))
    assert found.clipped is found.rmse_over_scale is None


def test_steps_and_what_lies_beyond_the_range_by_more_than_half_of_one() -> None:
    found = damage([0.0, 1.2, 2.4, 2.6], [0.0, 1.0, 2.0, 2.0], grid(0, 2, 2))
    assert found.clipped == 0.25
    assert found.rmse_over_scale == pytest.approx(math.sqrt((0.04 + 0.16 + 0.36) / 4))


def test_steps_may_differ_by_channel() -> None:
    scale = np.array([0.1, 10.0])
    by_channel = Grid(-127 * scale, 127 * scale, scale)
    found = damage([[0.0, 5.0], [0.05, 0.0]], [[0.0, 0.0], [0.0, 0.0]], by_channel)
    assert found.rmse_over_scale == pytest.approx(math.sqrt((0.25 + 0.25) / 4))


def test_rounding_alone_gives_one_over_the_square_root_of_twelve() -> None:
    values = np.random.default_rng(0).uniform(-1, 1, 200_000).astype(np.float32)
    scale = 2 / 255
    sums = DamageSum()
    sums.add(values, np.round(values / scale) * scale, grid(-1, 1, 255))
    # The standard error of the mean square of so many uniform errors is below 0.2 %.
    assert sums.damage().rmse_over_scale == pytest.approx(HEALTHY_RMSE, rel=0.005)
    assert pytest.approx(0.289, abs=0.0005) == HEALTHY_RMSE


def test_arrays_add_up_whatever_their_lengths() -> None:
    generator = np.random.default_rng(1)
    values = generator.normal(size=150_000).astype(np.float32)
    noise = values + generator.normal(scale=0.01, size=values.size).astype(np.float32)
    whole, parts = DamageSum(), DamageSum()
    whole.add(values, noise)
    for x, y in zip(np.array_split(values, 7), np.array_split(noise, 7), strict=True):
        parts.add(x.reshape(1, -1, 1), y.reshape(1, -1, 1))
    # Sums of doubles in another order.
    assert parts.damage().sqnr == pytest.approx(whole.damage().sqnr, rel=1e-9)


@pytest.mark.parametrize(
    ("expected", "found", "sqnr", "cosine"),
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
def test_what_is_equal_what_has_no_signal_and_what_is_not_finite(
    expected: list, found: list, sqnr: float, cosine: float
) -> None:
    with np.errstate(invalid="ignore"):
        told = damage(expected, found)
    assert told.sqnr == sqnr
    assert told.cosine == pytest.approx(cosine)
