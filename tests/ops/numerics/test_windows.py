"""Windows: padding, positions, and attributes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mobileprep.graph import attrs as attr
from mobileprep.graph.node import Node
from mobileprep.ops.nn import pooling
from mobileprep.ops.numerics.parallel import all_processors
from mobileprep.ops.numerics.windows import (
    Tile,
    Window,
    filter_window,
    layout_of,
    make_window,
    padded_rows,
    patches,
    reach,
    spatial,
)
from tests.ops import naive

# Extents, sizes, strides, and dilations.
SQUARE = ([5, 5], [1, 1], [1, 1], [1, 1])


def node(padding: str, **attrs: attr.AttrValue) -> Node:
    return Node("w", "Conv2D", attrs={"padding": attr.string(padding), **attrs})


@pytest.mark.parametrize(
    ("extent", "size", "stride", "dilation", "pads", "positions"),
    [
        (5, 3, 1, 1, (1, 1), 5),
        (5, 3, 2, 1, (1, 1), 3),
        (6, 3, 2, 1, (0, 1), 3),
        (5, 2, 1, 1, (0, 1), 5),
        (5, 3, 1, 2, (2, 2), 5),
        (5, 1, 3, 1, (0, 0), 2),
        (7, 4, 3, 1, (1, 2), 3),
    ],
)
def test_same_padding(
    extent: int, size: int, stride: int, dilation: int, pads: tuple[int, int], positions: int
) -> None:
    window = make_window(node("SAME"), [extent], [size], [stride], [dilation])
    assert (window.pads, window.positions([extent])) == ((pads,), (positions,))


def test_valid_padding() -> None:
    window = make_window(node("VALID"), [7, 8], [3, 2], [2, 3], [1, 2])
    assert (window.pads, window.positions([7, 8])) == (((0, 0), (0, 0)), (3, 2))


def test_explicit_padding() -> None:
    paddings = attr.integers(0, 0, 1, 2, 3, 4, 0, 0)
    window = make_window(node("EXPLICIT", explicit_paddings=paddings), *SQUARE)
    assert window.pads == ((1, 2), (3, 4))
    layout = attr.string("NCHW")
    paddings = attr.integers(0, 0, 0, 0, 1, 2, 3, 4)
    explicit = node("EXPLICIT", explicit_paddings=paddings, data_format=layout)
    window = make_window(explicit, *SQUARE)
    assert window.pads == ((1, 2), (3, 4))


@pytest.mark.parametrize(
    ("padding", "explicit", "message"),
    [
        ("SOME", (), "unknown padding 'SOME'"),
        ("EXPLICIT", (1, 0, 0, 0, 0, 0, 0, 0), "batch and channels"),
        ("EXPLICIT", (0, 0, -1, 0, 0, 0, 0, 0), "do not fit"),
        ("EXPLICIT", (), "do not fit"),
    ],
)
def test_invalid_padding_is_refused(padding: str, explicit: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_window(node(padding, explicit_paddings=attr.integers(*explicit)), *SQUARE)


def test_window_that_does_not_fit_is_refused() -> None:
    window = Window((3,), (1,), (1,), ((0, 0),))
    with pytest.raises(ValueError, match="a window of 3 does not fit into 2"):
        window.positions([2])
    assert window.positions([0]) == (0,)
    with pytest.raises(ValueError, match="strides"):
        make_window(node("VALID"), [5], [1], [0], [1])


def test_strides_along_batch_or_channels_are_refused() -> None:
    assert spatial([1, 2, 3, 1], "NHWC") == (2, 3)
    assert spatial([1, 1, 2, 3], "NCHW") == (2, 3)
    with pytest.raises(ValueError, match="batch or channels"):
        spatial([1, 2, 3, 2], "NHWC")


def test_layout_of() -> None:
    assert layout_of(node("SAME", data_format=attr.string("NDHWC"))) == "NHWC"
    assert layout_of(node("SAME")) == "NHWC"
    with pytest.raises(ValueError, match="NCHW_VECT_C"):
        layout_of(node("SAME", data_format=attr.string("NCHW_VECT_C")))


def test_reach() -> None:
    assert (reach(3, 1), reach(3, 2), reach(1, 9)) == (3, 5, 1)


@pytest.mark.parametrize("dilations", [(), (1, 1, 2, 1)])
def test_filter_window(dilations: tuple[int, ...]) -> None:
    kinds = {"strides": attr.integers(1, 2, 3, 1)}
    if dilations:
        kinds["dilations"] = attr.integers(*dilations)
    x, filters = np.zeros((1, 9, 8, 3)), np.zeros((4, 2, 3, 5))
    window = filter_window(node("VALID", **kinds), x, filters)
    spread = dilations[1:3] or (1, 1)
    assert window == Window((4, 2), (2, 3), spread, ((0, 0), (0, 0)))
    # Windows of 4 rows every 2 rows, and of 2 columns, or 3 if dilated, every 3 columns.
    assert window.positions([9, 8]) == (3, 3 - bool(dilations))


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
