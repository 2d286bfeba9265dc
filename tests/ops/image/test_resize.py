"""Image resizing ops."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32, i32, run

SIZED = [
    *("ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor"),
    "ResizeNearestNeighborGrad",
]
GRADIENTS = ["ResizeBilinearGrad", "ResizeBicubicGrad"]

SHAPES = [
    *(shapes(op, [(2, 4, 5, 3), [7, 8]], [(2, 7, 8, 3)]) for op in SIZED),
    *(shapes(op, [None, [7, 8]], [(-1, 7, 8, -1)]) for op in SIZED),
    *(shapes(op, [(2, 4, 5, 3), (2,)], [(2, -1, -1, 3)]) for op in SIZED),
    *(shapes(op, [(2, 4, 5, 3), [7, 8, 9]], None) for op in SIZED),
    *(shapes(op, [(2, 4, 5, 3), (2, 1)], None) for op in SIZED),
    *(shapes(op, [(4, 5, 3), [7, 8]], None) for op in SIZED),
    shapes("ScaleAndTranslate", [(2, 4, 5, 3), [7, 8], (2,), (2,)], [(2, 7, 8, 3)]),
    *(shapes(op, [(2, 7, 8, 3), (2, 4, -1, 3)], [(2, 4, -1, 3)]) for op in GRADIENTS),
    shapes("ScaleAndTranslateGrad", [(2, 7, 8, 3), (2, 4, 5, 3), (2,), (2,)], [(2, 4, 5, 3)]),
]

COSTS = [
    cost("ResizeNearestNeighbor", [(1, 4, 5, 3), (2,)], [(1, 7, 8, 3)], 0),
    cost("ResizeBilinear", [(1, 4, 5, 3), (2,)], [(1, 7, 8, 3)], 9 * 168),
    # five weighted sums of four values: four products and three sums each
    cost("ResizeBicubic", [(1, 4, 5, 3), (2,)], [(1, 7, 8, 3)], 35 * 168),
    cost("ResizeArea", [(1, 4, 5, 3), (2,)], [(1, 7, 8, 3)], 2 * 168),
    cost("ResizeArea", [(1, 7, 8, 3), (2,)], [(1, 4, 5, 3)], 2 * 168),
]

LINE = f32([0, 10, 20, 30]).reshape(1, 1, 4, 1)


def columns(op: str, x: np.ndarray, width: int, **attrs) -> list[float]:
    """A resized row of pixels."""
    return run(op, x, i32(1, width), **attrs).ravel().tolist()


def test_bilinear_default_positions() -> None:
    assert columns("ResizeBilinear", LINE, 8) == [0, 5, 10, 15, 20, 25, 30, 30]
    assert columns("ResizeBilinear", LINE, 2) == [0, 20]


def test_bilinear_half_pixel_centers() -> None:
    result = columns("ResizeBilinear", LINE, 8, half_pixel_centers=True)
    assert result == [0, 2.5, 7.5, 12.5, 17.5, 22.5, 27.5, 30]


def test_bilinear_align_corners() -> None:
    result = columns("ResizeBilinear", LINE, 7, align_corners=True)
    assert result == [0, 5, 10, 15, 20, 25, 30]
    assert columns("ResizeBilinear", LINE, 1, align_corners=True) == [0]


def test_bilinear_interpolates_both_axes() -> None:
    square = f32([[0, 2], [4, 6]]).reshape(1, 2, 2, 1)
    result = run("ResizeBilinear", square, i32(3, 3), align_corners=True)
    np.testing.assert_array_equal(result[0, :, :, 0], [[0, 1, 2], [2, 3, 4], [4, 5, 6]])


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.float16, np.float64])
def test_only_nearest_keeps_the_dtype(kind) -> None:
    pixels = LINE.astype(kind)
    assert run("ResizeBilinear", pixels, i32(1, 3)).dtype == np.float32
    assert run("ResizeBicubic", pixels, i32(1, 3)).dtype == np.float32
    assert run("ResizeArea", pixels, i32(1, 3)).dtype == np.float32
    assert run("ResizeNearestNeighbor", pixels, i32(1, 3)).dtype == kind


def test_nearest() -> None:
    assert columns("ResizeNearestNeighbor", LINE, 6) == [0, 0, 10, 20, 20, 30]
    assert columns("ResizeNearestNeighbor", LINE, 2, half_pixel_centers=True) == [10, 30]
    # The middle is between two pixels: it rounds up.
    assert columns("ResizeNearestNeighbor", LINE, 3, align_corners=True) == [0, 20, 30]


def test_area() -> None:
    assert columns("ResizeArea", LINE, 2) == [5, 25]
    np.testing.assert_allclose(columns("ResizeArea", LINE, 3), [2.5, 15, 27.5], rtol=1e-6)
    assert columns("ResizeArea", LINE, 8) == [0, 0, 10, 10, 20, 20, 30, 30]


def test_bicubic_overshoots() -> None:
    step = f32([0, 0, 0, 8, 8, 8]).reshape(1, 1, 6, 1)
    result = columns("ResizeBicubic", step, 12)
    assert result[::2] == [0, 0, 0, 8, 8, 8]
    # TensorFlow's weights halfway between two pixels are 0.59375 and -0.09375.
    np.testing.assert_allclose(result[3], -0.75, rtol=1e-6)
    np.testing.assert_allclose(result[5], 4, rtol=1e-6)


def test_bicubic_half_pixel_centers() -> None:
    flat = np.full((1, 1, 4, 1), 3, np.float32)
    result = columns("ResizeBicubic", flat, 9, half_pixel_centers=True)
    np.testing.assert_allclose(result, [3] * 9, rtol=1e-6)


def test_resize_to_same_size_is_identity() -> None:
    x = np.random.default_rng(0).random((2, 3, 5, 2), dtype=np.float32)
    np.testing.assert_array_equal(run("ResizeBilinear", x, i32(3, 5)), x)


@pytest.mark.parametrize("size", [(0, 3), (-1, 3), (1, 1, 1), (1 << 20, 1 << 20)])
def test_invalid_sizes_are_refused(size: tuple[int, ...]) -> None:
    with pytest.raises(InvalidGraphError, match="node 'y'"):
        run("ResizeBilinear", LINE, i32(list(size)))


def test_conflicting_attributes_are_refused() -> None:
    with pytest.raises(InvalidGraphError, match="exclude each other"):
        run("ResizeBilinear", LINE, i32(1, 2), align_corners=True, half_pixel_centers=True)


def test_invalid_images_are_refused() -> None:
    for shape in ((4, 4, 1), (1, 0, 4, 1)):
        with pytest.raises(InvalidGraphError, match="cannot run on float32"):
            run("ResizeBilinear", np.zeros(shape, np.float32), i32(2, 2))


test_shapes_and_costs = case_tests(SHAPES, COSTS)
