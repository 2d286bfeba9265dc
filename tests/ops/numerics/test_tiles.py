"""Input rows and patches of tiles, compared with padding the whole input."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.ops.numerics.windows import Tile, Window, padded_rows, patches, reach


def random_window(rng: np.random.Generator, extents: tuple[int, int]) -> Window | None:
    """A window over some elements, or None if it does not fit."""
    size, strides, dilations, before, after = (
        tuple(map(int, rng.integers(low, high, 2)))
        for low, high in ((1, 5), (1, 4), (1, 3), (0, 9), (0, 9))
    )
    window = Window(size, strides, dilations, tuple(zip(before, after, strict=True)))
    sums = zip(extents, before, after, size, dilations, strict=True)
    fits = all(n + low + high >= reach(length, step) for n, low, high, length, step in sums)
    return window if fits else None


@pytest.mark.parametrize("seed", range(60))
def test_padded_rows_match_the_padded_input(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3, *rng.integers(1, 7, 2), 2)).astype(np.float32)
    window = random_window(rng, x.shape[1:3])
    while window is None:
        window = random_window(rng, x.shape[1:3])
    whole = np.pad(x, ((0, 0), *window.pads, (0, 0)), constant_values=-3)
    rows = window.positions(x.shape[1:3])[0]
    for start in range(rows):
        stop = int(rng.integers(start + 1, rows + 1))
        result = padded_rows(x, window, Tile(slice(1, 3), slice(start, stop)), -3)
        first = start * window.strides[0]
        end = (stop - 1) * window.strides[0] + reach(window.size[0], window.dilations[0])
        np.testing.assert_array_equal(result, whole[1:3, first:end])


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("layout", ["whole", "among channels", "backwards"])
def test_patches_match_the_windows(seed: int, layout: str) -> None:
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(3, *rng.integers(1, 7, 2), 4)).astype(np.float32)
    x = {"whole": base, "among channels": base[..., 1:3], "backwards": base[:, ::-1]}[layout]
    window = random_window(rng, x.shape[1:3])
    while window is None:
        window = random_window(rng, x.shape[1:3])
    positions = window.positions(x.shape[1:3])
    whole = np.pad(x, ((0, 0), *window.pads, (0, 0)))
    first = int(rng.integers(positions[0]))
    result = patches(x, window, Tile(slice(1, 3), slice(first, positions[0])), positions)
    assert result.shape == (2, positions[0] - first, positions[1], *window.size, x.shape[-1])
    (down, across), (high, wide) = window.strides, window.dilations
    for row, column in np.ndindex(*result.shape[1:3]):
        row_start, column_start = (first + row) * down, column * across
        row_end = row_start + reach(window.size[0], high)
        column_end = column_start + reach(window.size[1], wide)
        covered = whole[1:3, row_start:row_end:high, column_start:column_end:wide]
        np.testing.assert_array_equal(result[:, row, column], covered)


def test_rows_without_padding_are_views() -> None:
    x = np.arange(48, dtype=np.float32).reshape(1, 6, 4, 2)
    window = Window((3, 4), (1, 1), (1, 1), ((0, 0), (0, 0)))
    result = padded_rows(x, window, Tile(slice(0, 1), slice(1, 3)))
    assert np.shares_memory(result, x)
    np.testing.assert_array_equal(result, x[:, 1:5])
