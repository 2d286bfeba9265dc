"""Pooling, compared with naive loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mobileprep.ops.nn import pooling
from mobileprep.ops.numerics.parallel import all_processors
from mobileprep.ops.numerics.windows import Window
from tests.ops import naive

WINDOWS = [
    Window(size, strides, (1, 1), pads)
    for size, strides, pads in itertools.product(
        ((1, 1), (3, 3), (2, 4), (3, 1), (1, 2)),
        ((1, 1), (2, 3)),
        (((0, 0), (0, 0)), ((1, 0), (1, 1))),
    )
    if max(itertools.chain(*pads)) < min(size)
]
X = np.random.default_rng(2).normal(size=(2, 9, 8, 3)).astype(np.float32)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_maximum(window: Window) -> None:
    expected = naive.windows(X, window, -np.inf).max(axis=(3, 4))
    np.testing.assert_array_equal(pooling.maximum(X, window), expected)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_average_ignores_padding(window: Window) -> None:
    expected = np.nanmean(naive.windows(X, window, np.nan), axis=(3, 4))
    np.testing.assert_allclose(pooling.average(X, window), expected, rtol=1e-5, atol=1e-6)


def test_maximum_of_negative_integers_ignores_padding() -> None:
    x = np.full((1, 2, 2, 1), -5, np.int8)
    window = Window((2, 2), (1, 1), (1, 1), ((1, 0), (1, 0)))
    assert (pooling.maximum(x, window) == -5).all()


def test_maximum_of_nan_is_nan() -> None:
    x = np.array([[1, np.nan], [3, 4]], np.float32).reshape(1, 2, 2, 1)
    assert np.isnan(pooling.maximum(x, Window((2, 2), (1, 1), (1, 1), ((0, 0), (0, 0)))))


def test_result_is_independent_of_tiles_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    window = Window((3, 3), (2, 2), (1, 1), ((0, 1), (1, 1)))
    expected = pooling.maximum(X, window), pooling.average(X, window)
    monkeypatch.setattr(pooling, "_TILE_BYTES", 50)
    with all_processors():
        result = pooling.maximum(X, window), pooling.average(X, window)
    for actual, other in zip(result, expected, strict=True):
        np.testing.assert_array_equal(actual, other)


def test_float16_average_is_accumulated_in_float32() -> None:
    x = np.full((1, 1, 64, 1), 1 / 3, np.float16)
    x[0, 0, 0] = 2048
    window = Window((1, 64), (1, 1), (1, 1), ((0, 0), (0, 0)))
    out = pooling.average(x, window)
    assert out.dtype == np.float16
    assert float(out.ravel()[0]) == pytest.approx(float(x.astype(float).mean()), rel=1e-3)
