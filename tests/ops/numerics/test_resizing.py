"""Resizing of rows of a few pixels, with values computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mobileprep.ops.numerics.resizing import (
    Sampling,
    resize_area,
    resize_bicubic,
    resize_bilinear,
    resize_nearest,
)

PLAIN = Sampling()
CORNERS = Sampling(align_corners=True)
CENTERS = Sampling(half_pixel=True)
LINE = [0.0, 10.0, 20.0, 40.0]
EVERY = [resize_area, resize_bicubic, resize_bilinear, resize_nearest]


def resized(
    resize: Callable[..., Any], values: list[float], count: int, sampling: Sampling, axis: int = 2
) -> list[float]:
    """A row of pixels, resized along one axis."""
    shape = [1, 1, 1, 1]
    shape[axis] = len(values)
    size = (count, 1) if axis == 1 else (1, count)
    result = resize(np.array(values, np.float32).reshape(shape), size, sampling)
    assert result.dtype == np.float32
    assert result.shape == (1, *size, 1)
    return [float(v) for v in result.ravel()]


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize(
    ("sampling", "count", "expected"),
    [
        (PLAIN, 2, [0, 20]),
        (PLAIN, 8, [0, 5, 10, 15, 20, 30, 40, 40]),
        (CORNERS, 2, [0, 40]),
        (CORNERS, 7, [0, 5, 10, 15, 20, 30, 40]),
        (CORNERS, 1, [0]),
        # Centers at 0.5 and 2.5, then from -0.25 on by halves.
        (CENTERS, 2, [5, 30]),
        (CENTERS, 8, [0, 2.5, 7.5, 12.5, 17.5, 25, 35, 40]),
        (PLAIN, 4, LINE),
    ],
)
def test_bilinear(sampling: Sampling, count: int, expected: list[float], axis: int) -> None:
    assert resized(resize_bilinear, LINE, count, sampling, axis) == expected


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize(
    ("sampling", "count", "expected"),
    [
        (PLAIN, 2, [0, 20]),
        (PLAIN, 6, [0, 0, 10, 20, 20, 40]),
        # Steps of 3 / 6: halves go up.
        (CORNERS, 7, [0, 10, 10, 20, 20, 40, 40]),
        (CORNERS, 2, [0, 40]),
        # Centers at 1 and 3, not at 0.5 and 2.5.
        (CENTERS, 2, [10, 40]),
        (CENTERS, 8, [0, 0, 10, 10, 20, 20, 40, 40]),
    ],
)
def test_nearest(sampling: Sampling, count: int, expected: list[float], axis: int) -> None:
    assert resized(resize_nearest, LINE, count, sampling, axis) == expected


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize(
    ("sampling", "count", "expected"),
    [
        (PLAIN, 2, [5, 30]),
        (PLAIN, 1, [17.5]),
        # Pixels of 4 / 3: (0 + 10 / 3) / (4 / 3), (20 / 3 + 40 / 3) / (4 / 3), (20 / 3 + 40) / ..
        (PLAIN, 3, [2.5, 15, 35]),
        (PLAIN, 8, [0, 0, 10, 10, 20, 20, 40, 40]),
        (CENTERS, 2, [5, 30]),
        # Pixels of 3 / 2 from 0 on: (0 + 10 / 2) / 1.5, then (10 / 2 + 20) / 1.5, (40 + 40 / 2).
        (CORNERS, 3, [10 / 3, 50 / 3, 40]),
    ],
)
def test_area(sampling: Sampling, count: int, expected: list[float], axis: int) -> None:
    assert resized(resize_area, LINE, count, sampling, axis) == pytest.approx(expected, rel=1e-6)


def test_area_of_one_pixel() -> None:
    assert resized(resize_area, [7.0], 1, CORNERS) == [7]


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize(
    ("sampling", "count", "expected"),
    [
        (PLAIN, 2, [0, 20]),
        (PLAIN, 4, LINE),
        (CORNERS, 4, LINE),
        (CENTERS, 4, LINE),
        # Halfway, the weights are -3/32, 19/32, 19/32, -3/32, with repeated border pixels.
        (PLAIN, 8, [0, 4.0625, 10, 14.0625, 20, 30.9375, 40, 41.875]),
        # With centers, Keys' weights -1/16, 9/16, 9/16, -1/16, without pixels outside.
        (CENTERS, 2, [(9 * 10 - 20) / 17, (-10 + 9 * 20 + 9 * 40) / 17]),
    ],
)
def test_bicubic(sampling: Sampling, count: int, expected: list[float], axis: int) -> None:
    result = resized(resize_bicubic, LINE, count, sampling, axis)
    assert result == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("resize", EVERY)
@pytest.mark.parametrize("sampling", [PLAIN, CORNERS, CENTERS])
def test_images_and_channels_are_independent(
    resize: Callable[..., Any], sampling: Sampling
) -> None:
    levels = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    flat = np.broadcast_to(levels[:, None, None, :], (2, 3, 5, 3))
    result = resize(np.ascontiguousarray(flat), (4, 2), sampling)
    assert result.shape == (2, 4, 2, 3)
    expected = np.broadcast_to(levels[:, None, None, :], result.shape)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_only_nearest_keeps_the_dtype() -> None:
    x = np.arange(4, dtype=np.uint8).reshape(1, 1, 4, 1)
    assert resize_nearest(x, (1, 2), PLAIN).dtype == np.uint8
    assert resize_bilinear(x, (1, 4), PLAIN).dtype == np.float32
