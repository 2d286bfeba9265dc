"""Convolutions of few multiplications against the plain ones."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from threadpoolctl import threadpool_limits

from mobileprep.numerics import winograd
from mobileprep.numerics.convolution import convolve
from mobileprep.numerics.parallel import all_processors
from mobileprep.numerics.tiles import Tile
from mobileprep.numerics.windows import Window
from mobileprep.numerics.winograd import WinogradFilters, convolve_winograd, winograd_outputs
from mobileprep.numerics.winograd_transforms import TAPS, transforms
from tests.ops import naive

# Of the largest result; plain sums in single precision are off by 4e-7.
TOLERANCE = 4e-6
SAME = Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))
VALID = Window((3, 3), (1, 1), (1, 1), ((0, 0), (0, 0)))
UNEVEN = Window((3, 3), (1, 1), (1, 1), ((2, 0), (0, 3)))


def made(shape: tuple[int, ...], count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = np.maximum(rng.normal(size=shape), 0).astype(np.float32)
    return x, rng.normal(size=(TAPS, TAPS, shape[-1], count)).astype(np.float32)


def convolved(
    x: np.ndarray, filters: np.ndarray, window: Window = SAME, outputs: int = 4
) -> np.ndarray:
    found = convolve_winograd(x, WinogradFilters.of(filters, outputs), window)
    assert found is not None
    return found


@pytest.mark.parametrize("outputs", [2, 4])
def test_a_short_convolution_is_exact_but_for_rounding(outputs: int) -> None:
    rng = np.random.default_rng(1)
    elements, taps = rng.integers(-9, 9, outputs + 2), rng.integers(-9, 9, TAPS)
    way = transforms(outputs)
    found = way.output @ ((way.filters @ taps) * (way.inputs @ elements))
    plain = sliding_window_view(elements, TAPS) @ taps
    np.testing.assert_allclose(found, plain, atol=1e-12)


@pytest.mark.parametrize("outputs", [2, 4])
@pytest.mark.parametrize("window", [SAME, VALID, UNEVEN], ids=["same", "valid", "uneven"])
@pytest.mark.parametrize("size", [(8, 8), (3, 9), (11, 6)], ids=str)
def test_it_is_the_plain_convolution(size: tuple[int, int], window: Window, outputs: int) -> None:
    x, filters = made((2, *size, 5), 7)
    found = convolved(x, filters, window, outputs)
    expected = naive.convolution(x, filters, window)
    assert (found.shape, found.dtype) == (expected.shape, np.float32)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize("outputs", [2, 4])
def test_deep_layers_stay_as_near(outputs: int) -> None:
    x, filters = made((1, 16, 16, 256), 32)
    expected = convolve(x.astype(np.float64), filters.astype(np.float64), SAME)
    off = np.abs(convolved(x, filters, SAME, outputs) - expected).max()
    assert off <= TOLERANCE * np.abs(expected).max()


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    x, filters = made((1, 37, 30, 33), 40)
    for space in (1 << 14, 1 << 20):
        monkeypatch.setattr(winograd, "_SPACE_BYTES", space)
        with threadpool_limits(1):
            alone = convolved(x, filters)
        with all_processors():
            assert convolved(x, filters).tobytes() == alone.tobytes()


def test_each_output_is_finished_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "_SPACE_BYTES", 1 << 14)
    x, filters = made((3, 14, 13, 8), 8)
    tiles: list[Tile] = []

    def finish(values: np.ndarray, tile: Tile) -> None:
        tiles.append(tile)
        values += 1000

    plain = convolved(x, filters)
    found = convolve_winograd(x, WinogradFilters.of(filters, 4), SAME, finish)
    assert len(tiles) > 3
    np.testing.assert_array_equal(found, plain + 1000)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
def test_no_infinity_spreads(value: float) -> None:
    x, filters = made((1, 12, 12, 4), 4)
    x[0, 5, 5] = value
    with np.errstate(all="ignore"):
        assert convolve_winograd(x, WinogradFilters.of(filters, 4), SAME) is None


@pytest.mark.parametrize(
    ("shape", "count", "window", "outputs"),
    [
        ((1, 56, 56, 64), 64, SAME, 4),
        ((1, 14, 14, 256), 256, SAME, 2),
        ((8, 7, 7, 512), 512, SAME, 2),
        ((1, 7, 7, 512), 512, SAME, 0),
        ((1, 56, 56, 3), 32, SAME, 0),
        ((1, 57, 57, 64), 64, Window((3, 3), (2, 2), (1, 1), ((1, 1), (1, 1))), 0),
        ((1, 56, 56, 64), 64, Window((3, 3), (1, 1), (2, 2), ((2, 2), (2, 2))), 0),
        ((1, 56, 56, 128), 64, SAME, 0),
    ],
    ids=["large", "deep", "batch", "few", "shallow", "strides", "dilations", "groups"],
)
def test_where_it_pays(shape: tuple[int, ...], count: int, window: Window, outputs: int) -> None:
    channels = 64 if shape[-1] == 128 else shape[-1]
    filters = np.zeros((*window.size, channels, count), np.float32)
    assert winograd_outputs(shape, filters, window) == outputs
