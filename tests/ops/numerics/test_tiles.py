"""What the windows of a tile reach, against padding the whole input."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.ops.numerics.windows import Tile, Window, padded_rows, patches, reach


def random_window(rng: np.random.Generator, extents: tuple[int, int]) -> Window | None:
    """A window that slides over some elements, or None where there is no room for it."""
    size, strides, dilations, before, after = (
        tuple(map(int, rng.integers(low, high, 2)))
        for low, high in ((1, 5), (1, 4), (1, 3), (0, 9), (0, 9))
    )
    window = Window(size, strides, dilations, tuple(zip(before, after, strict=True)))
    sums = zip(extents, before, after, size, dilations, strict=True)
    fits = all(n + low + high >= reach(length, step) for n, low, high, length, step in sums)
    return window if fits else None


@pytest.mark.parametrize("seed", range(60))
def test_a_tile_reaches_its_part_of_the_padded_input(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3, *rng.integers(1, 7, 2), 2)).astype(np.float32)
    window = random_window(rng, x.shape[1:3])
    while window is None:
        window = random_window(rng, x.shape[1:3])
    whole = np.pad(x, ((0, 0), *window.pads, (0, 0)), constant_values=-3)
    rows = window.positions(x.shape[1:3])[0]
    for start in range(rows):
        stop = int(rng.integers(start + 1, rows + 1))
        found = padded_rows(x, window, Tile(slice(1, 3), slice(start, stop)), -3)
        first = start * window.strides[0]
        end = (stop - 1) * window.strides[0] + reach(window.size[0], window.dilations[0])
        np.testing.assert_array_equal(found, whole[1:3, first:end])


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("lies", ["whole", "among channels", "backwards"])
def test_patches_are_what_each_window_covers(seed: int, lies: str) -> None:
    rng = np.random.default_rng(seed)
    made = rng.normal(size=(3, *rng.integers(1, 7, 2), 4)).astype(np.float32)
    x = {"whole": made, "among channels": made[..., 1:3], "backwards": made[:, ::-1]}[lies]
    window = random_window(rng, x.shape[1:3])
    while window is None:
        window = random_window(rng, x.shape[1:3])
    positions = window.positions(x.shape[1:3])
    whole = np.pad(x, ((0, 0), *window.pads, (0, 0)))
    first = int(rng.integers(positions[0]))
    found = patches(x, window, Tile(slice(1, 3), slice(first, positions[0])), positions)
    assert found.shape == (2, positions[0] - first, positions[1], *window.size, x.shape[-1])
    (down, across), (high, wide) = window.strides, window.dilations
    for row, column in np.ndindex(*found.shape[1:3]):
        top, left = (first + row) * down, column * across
        bottom = top + reach(window.size[0], high)
        right = left + reach(window.size[1], wide)
        covered = whole[1:3, top:bottom:high, left:right:wide]
        np.testing.assert_array_equal(found[:, row, column], covered)


def test_rows_without_padding_are_no_copy() -> None:
    x = np.arange(48, dtype=np.float32).reshape(1, 6, 4, 2)
    window = Window((3, 4), (1, 1), (1, 1), ((0, 0), (0, 0)))
    found = padded_rows(x, window, Tile(slice(0, 1), slice(1, 3)))
    assert np.shares_memory(found, x)
    np.testing.assert_array_equal(found, x[:, 1:5])
