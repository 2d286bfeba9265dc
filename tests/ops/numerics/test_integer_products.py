"""Exact integer products, compared with 64-bit sums."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.ops.numerics.integer_products import convolve_integers, multiply_integers
from mobileprep.ops.numerics.parallel import all_processors
from mobileprep.ops.numerics.windows import Window
from tests.ops.naive import windows

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
