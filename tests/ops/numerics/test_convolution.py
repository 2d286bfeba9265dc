"""Convolutions match naive ones with any tiling and number of threads."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from mobileprep.ops.numerics import convolution
from mobileprep.ops.numerics.convolution import convolve, convolve_depthwise, convolve_transposed
from mobileprep.ops.numerics.integer_products import convolve_integers, multiply_integers
from mobileprep.ops.numerics.parallel import all_processors
from mobileprep.ops.numerics.windows import Window
from tests.ops import naive
from tests.ops.naive import windows

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


ZEROS = [(0, 0), (128, 131), (255, 3), (7, -300), (-40, 128), (700, 5), (-(2**31), 2**31 - 1)]


def random_bytes(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape, dtype=np.uint8)


def to_int32(x: np.ndarray) -> np.ndarray:
    return x.astype(np.int64).astype(np.int32)


@pytest.mark.parametrize("zeros", ZEROS)
def test_product_is_exact_modulo_2_to_the_32(zeros: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x, y = random_bytes(rng, 37, 2000), random_bytes(rng, 2000, 19)
    with np.errstate(over="ignore"):
        exact = (x.astype(np.int64) - zeros[0]) @ (y.astype(np.int64) - zeros[1])
    np.testing.assert_array_equal(multiply_integers(x, y, zeros), to_int32(exact))


def test_largest_sums_are_exact() -> None:
    x, y = np.full((2, 70_000), 255, np.uint8), np.full((70_000, 3), 255, np.uint8)
    result = multiply_integers(x, y, (0, 0))
    assert (result == to_int32(np.array(255 * 255 * 70_000))).all()


def test_product_is_independent_of_threads() -> None:
    rng = np.random.default_rng(1)
    x, y = random_bytes(rng, 600, 300), random_bytes(rng, 300, 200)
    alone = multiply_integers(x, y, (3, 4))
    with all_processors():
        np.testing.assert_array_equal(multiply_integers(x, y, (3, 4)), alone)


def test_empty_products() -> None:
    result = multiply_integers(np.zeros((2, 0), np.uint8), np.zeros((0, 3), np.uint8), (1, 1))
    assert result.tolist() == [[0] * 3] * 2
    assert (
        multiply_integers(np.zeros((0, 4), np.uint8), np.zeros((4, 3), np.uint8), (1, 1)).size == 0
    )


def expected(x: np.ndarray, filters: np.ndarray, window: Window, zeros: tuple[int, int]):
    """Padding is 0 after subtraction of a zero point up to 255, otherwise its low byte before."""
    source = x.astype(np.int64) - zeros[0]
    padding = (zeros[0] & 255) - zeros[0] if zeros[0] > 255 else 0
    patches = windows(source, window, padding)
    return to_int32(np.tensordot(patches, filters.astype(np.int64) - zeros[1], axes=3))


@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize("pads", [((0, 0), (0, 0)), ((1, 2), (2, 1))])
def test_convolution_is_exact_modulo_2_to_the_32(
    zeros: tuple[int, int], pads: tuple[tuple[int, int], ...]
) -> None:
    rng = np.random.default_rng(2)
    x, filters = random_bytes(rng, 2, 9, 8, 40), random_bytes(rng, 3, 4, 40, 6)
    window = Window((3, 4), (2, 1), (1, 1), pads)
    with np.errstate(over="ignore"):
        exact = expected(x, filters, window, zeros)
    np.testing.assert_array_equal(convolve_integers(x, filters, window, zeros), exact)


def test_convolution_with_signed_filters_and_dilations() -> None:
    rng = np.random.default_rng(3)
    x, filters = random_bytes(rng, 1, 9, 8, 3), random_bytes(rng, 2, 2, 3, 6).view(np.int8)
    window = Window((2, 2), (1, 1), (3, 2), ((1, 0), (0, 1)))
    exact = expected(x, filters, window, (0, 0))
    np.testing.assert_array_equal(convolve_integers(x, filters, window), exact)


def test_convolution_is_independent_of_threads() -> None:
    rng = np.random.default_rng(4)
    x, filters = random_bytes(rng, 2, 60, 50, 32), random_bytes(rng, 3, 3, 32, 48)
    window = Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))
    alone = convolve_integers(x, filters, window, (5, 120))
    with all_processors():
        np.testing.assert_array_equal(convolve_integers(x, filters, window, (5, 120)), alone)


def test_convolution_without_images_or_channels() -> None:
    window = Window((1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)))
    nothing = convolve_integers(
        np.zeros((1, 2, 2, 0), np.uint8), np.zeros((1, 1, 0, 3), np.uint8), window, (1, 1)
    )
    assert nothing.tolist() == np.zeros((1, 2, 2, 3)).tolist()
    filters = np.zeros((1, 1, 4, 3), np.uint8)
    no_images = np.zeros((0, 2, 2, 4), np.uint8)
    assert convolve_integers(no_images, filters, window).shape == (0, 2, 2, 3)
