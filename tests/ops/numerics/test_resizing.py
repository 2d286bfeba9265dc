"""Resizing along lines of a few pixels, with numbers worked out by hand."""

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
CENTRES = Sampling(half_pixel=True)
LINE = [0.0, 10.0, 20.0, 40.0]
EVERY = [resize_area, resize_bicubic, resize_bilinear, resize_nearest]


def resized(
    resize: Callable[..., Any], values: list[float], count: int, sampling: Sampling, axis: int = 2
) -> list[float]:
    """A line of pixels resized along one axis."""
    shape = [1, 1, 1, 1]
    shape[axis] = len(values)
    size = (count, 1) if axis == 1 else (1, count)
    found = resize(np.array(values, np.float32).reshape(shape), size, sampling)
    assert found.dtype == np.float32
    assert found.shape == (1, *size, 1)
    return [float(v) for v in found.ravel()]


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize(
    ("sampling", "count", "expected"),
    [
        (PLAIN, 2, [0, 20]),
        (PLAIN, 8, [0, 5, 10, 15, 20, 30, 40, 40]),
        (CORNERS, 2, [0, 40]),
        (CORNERS, 7, [0, 5, 10, 15, 20, 30, 40]),
        (CORNERS, 1, [0]),
        # Centres at 0.5 and 2.5, then from -0.25 on by halves.
        (CENTRES, 2, [5, 30]),
        (CENTRES, 8, [0, 2.5, 7.5, 12.5, 17.5, 25, 35, 40]),
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
        # Centres at 1 and 3, not at 0.5 and 2.5.
        (CENTRES, 2, [10, 40]),
        (CENTRES, 8, [0, 0, 10, 10, 20, 20, 40, 40]),
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
        (CENTRES, 2, [5, 30]),
        # Pixels of 3 / 2 from 0 on: (0 + 10 / 2) / 1.5, then (10 / 2 + 20) / 1.5, (40 + 40 / 2).
        (CORNERS, 3, [10 / 3, 50 / 3, 40]),
    ],
)
def test_area(sampling: Sampling, count: int, expected: list[float], axis: int) -> None:
    assert resized(resize_area, LINE, count, sampling, axis) == pytest.approx(expected, rel=1e-6)


def test_one_pixel_of_an_axis_that_is_aligned_is_itself() -> None:
    assert resized(resize_area, [7.0], 1, CORNERS) == [7]


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize(
    ("sampling", "count", "expected"),
    [
        (PLAIN, 2, [0, 20]),
        (PLAIN, 4, LINE),
        (CORNERS, 4, LINE),
        (CENTRES, 4, LINE),
        # Halfway the weights are -3/32, 19/32, 19/32, -3/32, at the borders of repeated pixels.
        (PLAIN, 8, [0, 4.0625, 10, 14.0625, 20, 30.9375, 40, 41.875]),
        # Of centres Keys' weights, -1/16, 9/16, 9/16, -1/16, without what lies outside.
        (CENTRES, 2, [(9 * 10 - 20) / 17, (-10 + 9 * 20 + 9 * 40) / 17]),
    ],
)
def test_bicubic(sampling: Sampling, count: int, expected: list[float], axis: int) -> None:
    found = resized(resize_bicubic, LINE, count, sampling, axis)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("resize", EVERY)
@pytest.mark.parametrize("sampling", [PLAIN, CORNERS, CENTRES])
def test_images_and_channels_do_not_mix(resize: Callable[..., Any], sampling: Sampling) -> None:
    levels = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    flat = np.broadcast_to(levels[:, None, None, :], (2, 3, 5, 3))
    found = resize(np.ascontiguousarray(flat), (4, 2), sampling)
    assert found.shape == (2, 4, 2, 3)
    expected = np.broadcast_to(levels[:, None, None, :], found.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_nearest_pixels_keep_their_type() -> None:
    x = np.arange(4, dtype=np.uint8).reshape(1, 1, 4, 1)
    assert resize_nearest(x, (1, 2), PLAIN).dtype == np.uint8
    assert resize_bilinear(x, (1, 4), PLAIN).dtype == np.float32
