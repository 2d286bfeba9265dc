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
from mobileprep.numerics.winograd import WinogradConvolution, WinogradFilters
from mobileprep.numerics.winograd_schemes import Axis, Scheme, winograd_scheme
from mobileprep.numerics.winograd_transforms import transforms
from tests.ops import naive

# Of the largest result; plain sums in single precision are off by 4e-7.
TOLERANCE = 4e-6
SAME = Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))
VALID = Window((3, 3), (1, 1), (1, 1), ((0, 0), (0, 0)))
UNEVEN = Window((3, 3), (1, 1), (1, 1), ((2, 0), (0, 3)))

TWO, FOUR, FIVE = Axis(2, 3), Axis(4, 3), Axis(2, 5)
SIXTEEN = Scheme(FOUR, FOUR)
SCHEMES = {
    (3, 3): (Scheme(TWO, TWO), SIXTEEN),
    (5, 5): (Scheme(FIVE, FIVE),),
}
CASES = [(size, scheme) for size, schemes in SCHEMES.items() for scheme in schemes]
IDS = [f"{size}, {scheme.height.outputs * scheme.width.outputs}" for size, scheme in CASES]


def made(
    shape: tuple[int, ...], count: int, size: tuple[int, int] = (3, 3)
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = np.maximum(rng.normal(size=shape), 0).astype(np.float32)
    return x, rng.normal(size=(*size, shape[-1], count)).astype(np.float32)


def sliding(size: tuple[int, int], pads: tuple[tuple[int, int], ...] | None = None) -> Window:
    """A window over all elements, by default with as many outputs as elements."""
    return Window(size, (1, 1), (1, 1), pads or tuple((n // 2, n // 2) for n in size))


def convolution(
    x: np.ndarray, filters: np.ndarray, window: Window = SAME, scheme: Scheme = SIXTEEN
) -> WinogradConvolution:
    return WinogradConvolution.of(WinogradFilters.of(filters, scheme), x.shape, window)


def convolved(
    x: np.ndarray, filters: np.ndarray, window: Window = SAME, scheme: Scheme = SIXTEEN
) -> np.ndarray:
    found = convolution(x, filters, window, scheme)(x)
    assert found is not None
    return found


@pytest.mark.parametrize(("outputs", "taps"), [(2, 3), (4, 3), (2, 5)])
def test_a_short_convolution_is_exact_but_for_rounding(outputs: int, taps: int) -> None:
    rng = np.random.default_rng(1)
    elements, filters = rng.integers(-9, 9, outputs + taps - 1), rng.integers(-9, 9, taps)
    way = transforms(outputs, taps)
    found = way.output @ ((way.filters @ filters) * (way.inputs @ elements))
    plain = sliding_window_view(elements, taps) @ filters
    np.testing.assert_allclose(found, plain, atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES[3, 3], ids=["2", "4"])
@pytest.mark.parametrize("window", [SAME, VALID, UNEVEN], ids=["same", "valid", "uneven"])
@pytest.mark.parametrize("size", [(8, 8), (3, 9), (11, 6)], ids=str)
def test_it_is_the_plain_convolution(size: tuple[int, int], window: Window, scheme: Scheme) -> None:
    x, filters = made((2, *size, 5), 7)
    found = convolved(x, filters, window, scheme)
    expected = naive.convolution(x, filters, window)
    assert (found.shape, found.dtype) == (expected.shape, np.float32)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize(("size", "scheme"), CASES, ids=IDS)
@pytest.mark.parametrize("pads", [None, ((0, 0), (0, 0)), ((5, 0), (0, 4))], ids=str)
def test_windows_of_other_sizes_are_too(
    size: tuple[int, int], scheme: Scheme, pads: tuple[tuple[int, int], ...] | None
) -> None:
    window = sliding(size, pads)
    x, filters = made((2, 9, 13, 6), 3, size)
    expected = naive.convolution(x, filters, window)
    found = convolved(x, filters, window, scheme)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize(("size", "scheme"), CASES, ids=IDS)
def test_deep_layers_stay_as_near(size: tuple[int, int], scheme: Scheme) -> None:
    window = sliding(size)
    x, filters = made((1, 16, 16, 256), 32, size)
    expected = convolve(x.astype(np.float64), filters.astype(np.float64), window)
    off = convolved(x, filters, window, scheme) - expected
    assert np.abs(off).max() <= TOLERANCE * np.abs(expected).max()
    plain = convolve(x, filters, window) - expected
    assert np.sqrt(np.mean(off**2)) <= 6 * np.sqrt(np.mean(plain**2))


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    x, filters = made((1, 37, 30, 33), 40)
    for space in (1 << 14, 1 << 20, 1 << 30):
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
    found = convolution(x, filters)(x, finish)
    assert len(tiles) > 3
    np.testing.assert_array_equal(found, plain + 1000)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
def test_no_infinity_spreads(value: float) -> None:
    x, filters = made((1, 12, 12, 4), 4)
    x[0, 5, 5] = value
    with np.errstate(all="ignore"):
        assert convolution(x, filters)(x) is None


def test_results_whose_squares_overflow_are_left_to_plain_sums() -> None:
    x, filters = made((1, 8, 8, 4), 5)
    made_for = convolution(x, filters)
    assert made_for(x * np.float32(1e15)) is not None
    with np.errstate(all="ignore"):
        assert made_for(x * np.float32(1e19)) is None


@pytest.mark.parametrize(
    ("shape", "count", "window", "scheme"),
    [
        ((1, 56, 56, 64), 64, SAME, SIXTEEN),
        ((1, 147, 147, 32), 64, SAME, SIXTEEN),
        ((1, 149, 149, 32), 32, VALID, None),
        ((1, 12, 12, 512), 512, SAME, Scheme(TWO, TWO)),
        ((1, 14, 14, 256), 256, SAME, Scheme(TWO, TWO)),
        ((8, 7, 7, 512), 512, SAME, Scheme(TWO, TWO)),
        ((1, 35, 35, 48), 64, sliding((5, 5)), Scheme(FIVE, FIVE)),
        ((1, 17, 17, 128), 128, sliding((1, 7)), None),
        ((1, 17, 17, 160), 192, sliding((7, 1)), None),
        ((1, 8, 8, 384), 384, sliding((1, 3)), None),
        ((1, 7, 7, 512), 512, SAME, None),
        ((1, 56, 56, 3), 32, SAME, None),
        ((1, 57, 57, 64), 64, Window((3, 3), (2, 2), (1, 1), ((1, 1), (1, 1))), None),
        ((1, 56, 56, 64), 64, Window((3, 3), (1, 1), (2, 2), ((2, 2), (2, 2))), None),
        ((1, 56, 56, 128), 64, SAME, None),
        ((1, 56, 56, 64), 64, sliding((7, 7)), None),
    ],
    ids=[
        "large",
        "fewer channels",
        "few channels",
        "few patches",
        "deep",
        "batch",
        "five",
        "row",
        "column",
        "short row",
        "few",
        "shallow",
        "strides",
        "dilations",
        "groups",
        "seven",
    ],
)
def test_where_it_pays(
    shape: tuple[int, ...], count: int, window: Window, scheme: Scheme | None
) -> None:
    channels = 64 if shape[-1] == 128 and window == SAME else shape[-1]
    filters = np.zeros((*window.size, channels, count), np.float32)
    assert winograd_scheme(shape, filters, window) == scheme
