"""Convolutions match naive ones with any tiling and number of threads."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from mobileprep.ops.numerics import convolution
from mobileprep.ops.numerics.convolution import convolve, convolve_depthwise, convolve_transposed
from mobileprep.ops.numerics.parallel import all_processors
from mobileprep.ops.numerics.windows import Window
from tests.ops import naive

# float32 rounding over a few hundred products.
TOLERANCE = 1e-5

WINDOWS = [
    Window(size, strides, dilations, pads)
    for size, strides, dilations, pads in itertools.product(
        ((1, 1), (3, 3), (1, 4)),
        ((1, 1), (2, 3)),
        ((1, 1), (2, 1)),
        (((0, 0), (0, 0)), ((1, 2), (2, 0))),
    )
]


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=s).astype(np.float32) for s in shapes]


def assert_close(result: np.ndarray, expected: np.ndarray) -> None:
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, atol=TOLERANCE * np.abs(expected).max(initial=1))


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_convolution(window: Window) -> None:
    x, filters = arrays((2, 9, 10, 3), (*window.size, 3, 4))
    assert_close(convolve(x, filters, window), naive.convolution(x, filters, window))


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("multiplier", [1, 2])
def test_depthwise_convolution(window: Window, multiplier: int) -> None:
    x, filters = arrays((2, 9, 10, 3), (*window.size, 3, multiplier))
    assert_close(convolve_depthwise(x, filters, window), naive.depthwise(x, filters, window))


def test_depthwise_convolution_ignores_values_outside_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(convolution, "_TILE_BYTES", 200)
    window = Window((3, 3), (2, 2), (1, 1), ((0, 1), (0, 1)))
    x, filters = arrays((1, 8, 9, 4), (3, 3, 4, 1))
    x[:, 0] = np.inf
    assert np.isfinite(convolve_depthwise(x, filters, window)[:, 1:]).all()


def test_convolution_over_three_axes() -> None:
    window = Window((2, 3, 2), (1, 2, 1), (1, 1, 2), ((0, 1), (1, 1), (0, 0)))
    x, filters = arrays((2, 5, 6, 7, 2), (2, 3, 2, 2, 3))
    assert_close(convolve(x, filters, window), naive.convolution(x, filters, window))


def test_grouped_convolution() -> None:
    window = Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))
    x, filters = arrays((1, 6, 6, 4), (3, 3, 2, 6))
    parts = [
        naive.convolution(x[..., g * 2 : g * 2 + 2], filters[..., g * 3 : g * 3 + 3], window)
        for g in (0, 1)
    ]
    assert_close(convolve(x, filters, window), np.concatenate(parts, axis=-1))


@pytest.mark.parametrize("limit", [1, 4096, 1 << 30])
def test_result_is_independent_of_tiles(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "_PATCH_BYTES", limit)
    monkeypatch.setattr(convolution, "_OUTPUT_BYTES", limit)
    monkeypatch.setattr(convolution, "_TILE_BYTES", limit)
    window = Window((3, 3), (2, 1), (1, 1), ((1, 0), (1, 1)))
    x, filters, own = arrays((3, 11, 7, 4), (3, 3, 4, 5), (3, 3, 4, 1))
    assert_close(convolve(x, filters, window), naive.convolution(x, filters, window))
    assert_close(convolve_depthwise(x, own, window), naive.depthwise(x, own, window))


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("shape", [(1, 40, 41, 64), (9, 7, 7, 128), (1, 5, 5, 512)])
def test_result_is_independent_of_threads(shape: tuple[int, ...], size: int) -> None:
    around = (size // 2, size // 2)
    window = Window((size, size), (1, 1), (1, 1), (around, around))
    x, filters = arrays(shape, (size, size, shape[-1], 640))
    own = arrays((size, size, shape[-1], 1))[0]
    with threadpool_limits(1):
        alone = convolve(x, filters, window), convolve_depthwise(x, own, window)
    with all_processors():
        shared = convolve(x, filters, window), convolve_depthwise(x, own, window)
    for ours, expected in zip(shared, alone, strict=True):
        assert ours.tobytes() == expected.tobytes()


@pytest.mark.parametrize("shape", [(0, 5, 5, 3), (2, 0, 0, 3)])
def test_empty_input(shape: tuple[int, ...]) -> None:
    window = Window((1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)))
    x, filters, own = arrays(shape, (1, 1, 3, 4), (1, 1, 3, 1))
    assert convolve(x, filters, window).shape == (*shape[:3], 4)
    assert convolve_depthwise(x, own, window).shape == shape


def test_wrong_channel_counts_are_refused() -> None:
    window = Window((1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)))
    x, filters, own = arrays((1, 4, 4, 4), (1, 1, 3, 6), (1, 1, 3, 1))
    with pytest.raises(ValueError, match="4 channels do not fit 6 filters of 3"):
        convolve(x, filters, window)
    with pytest.raises(ValueError, match="4 channels do not fit filters for 3"):
        convolve_depthwise(x, own, window)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_transposed_convolution_is_the_adjoint(window: Window) -> None:
    # Adjoint: <conv(x), y> equals <x, transposed(y)> for any x and y.
    x, filters, own = arrays((2, 9, 10, 3), (*window.size, 3, 4), (*window.size, 3, 2))
    for run, bank, is_depthwise in ((convolve, filters, False), (convolve_depthwise, own, True)):
        out = run(x, bank, window).astype(np.float64)
        (y,) = arrays(out.shape)
        back = convolve_transposed(x.shape, bank, y, window, depthwise=is_depthwise)
        assert back.shape == x.shape
        assert np.sum(x * back, dtype=np.float64) == pytest.approx(
            np.sum(out * y), rel=1e-4, abs=1e-2
        )


def test_transposed_convolution_of_wrong_shape_is_refused() -> None:
    window = Window((2, 2), (2, 2), (1, 1), ((0, 0), (0, 0)))
    filters, y = arrays((2, 2, 3, 4), (1, 3, 3, 4))
    with pytest.raises(ValueError, match="is not what filters"):
        convolve_transposed((1, 4, 4, 3), filters, y, window)
