"""Exact products of integers, against sums written out in 64 bits."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.ops.numerics.integer_products import convolve_integers, multiply_integers
from mobileprep.ops.numerics.parallel import all_processors
from mobileprep.ops.numerics.windows import Window
from tests.ops.naive import windows

ZEROS = [(0, 0), (128, 131), (255, 3), (7, -300), (-40, 128), (700, 5), (-(2**31), 2**31 - 1)]


def eight_bits(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape, dtype=np.uint8)


def wrapped(x: np.ndarray) -> np.ndarray:
    return x.astype(np.int64).astype(np.int32)


@pytest.mark.parametrize("zeros", ZEROS)
def test_a_product_is_exact_modulo_2_to_the_32(zeros: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    left, right = eight_bits(rng, 37, 2000), eight_bits(rng, 2000, 19)
    with np.errstate(over="ignore"):
        exact = (left.astype(np.int64) - zeros[0]) @ (right.astype(np.int64) - zeros[1])
    np.testing.assert_array_equal(multiply_integers(left, right, zeros), wrapped(exact))


def test_the_largest_sums_are_exact() -> None:
    left, right = np.full((2, 70_000), 255, np.uint8), np.full((70_000, 3), 255, np.uint8)
    found = multiply_integers(left, right, (0, 0))
    assert (found == wrapped(np.array(255 * 255 * 70_000))).all()


def test_threads_do_not_change_a_product() -> None:
    rng = np.random.default_rng(1)
    left, right = eight_bits(rng, 600, 300), eight_bits(rng, 300, 200)
    alone = multiply_integers(left, right, (3, 4))
    with all_processors():
        np.testing.assert_array_equal(multiply_integers(left, right, (3, 4)), alone)


def test_an_empty_sum_is_zero() -> None:
    found = multiply_integers(np.zeros((2, 0), np.uint8), np.zeros((0, 3), np.uint8), (1, 1))
    assert found.tolist() == [[0] * 3] * 2
    assert (
        multiply_integers(np.zeros((0, 4), np.uint8), np.zeros((4, 3), np.uint8), (1, 1)).size == 0
    )


def expected(x: np.ndarray, filters: np.ndarray, window: Window, zeros: tuple[int, int]):
    """Padding is 0 after the zero is taken, but the lowest bits of a zero above 255 before."""
    source = x.astype(np.int64) - zeros[0]
    padding = (zeros[0] & 255) - zeros[0] if zeros[0] > 255 else 0
    found = windows(source, window, padding)
    return wrapped(np.tensordot(found, filters.astype(np.int64) - zeros[1], axes=3))


@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize("pads", [((0, 0), (0, 0)), ((1, 2), (2, 1))])
def test_a_convolution_is_exact_modulo_2_to_the_32(
    zeros: tuple[int, int], pads: tuple[tuple[int, int], ...]
) -> None:
    rng = np.random.default_rng(2)
    x, filters = eight_bits(rng, 2, 9, 8, 40), eight_bits(rng, 3, 4, 40, 6)
    window = Window((3, 4), (2, 1), (1, 1), pads)
    with np.errstate(over="ignore"):
        exact = expected(x, filters, window, zeros)
    np.testing.assert_array_equal(convolve_integers(x, filters, window, zeros), exact)


def test_signed_filters_and_dilations_are_taken() -> None:
    rng = np.random.default_rng(3)
    x, filters = eight_bits(rng, 1, 9, 8, 3), eight_bits(rng, 2, 2, 3, 6).view(np.int8)
    window = Window((2, 2), (1, 1), (3, 2), ((1, 0), (0, 1)))
    exact = expected(x, filters, window, (0, 0))
    np.testing.assert_array_equal(convolve_integers(x, filters, window), exact)


def test_threads_do_not_change_a_convolution() -> None:
    rng = np.random.default_rng(4)
    x, filters = eight_bits(rng, 2, 60, 50, 32), eight_bits(rng, 3, 3, 32, 48)
    window = Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))
    alone = convolve_integers(x, filters, window, (5, 120))
    with all_processors():
        np.testing.assert_array_equal(convolve_integers(x, filters, window, (5, 120)), alone)


def test_no_images_and_no_channels_give_what_sums_of_nothing_are() -> None:
    window = Window((1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)))
    nothing = convolve_integers(
        np.zeros((1, 2, 2, 0), np.uint8), np.zeros((1, 1, 0, 3), np.uint8), window, (1, 1)
    )
    assert nothing.tolist() == np.zeros((1, 2, 2, 3)).tolist()
    filters = np.zeros((1, 1, 4, 3), np.uint8)
    assert convolve_integers(np.zeros((0, 2, 2, 4), np.uint8), filters, window).shape == (
        0,
        2,
        2,
        3,
    )
