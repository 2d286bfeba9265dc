"""Resizing of images."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import CostCase, OpCase, cost, shapes
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
    # five weighted sums of four: four products and three sums each
    cost("ResizeBicubic", [(1, 4, 5, 3), (2,)], [(1, 7, 8, 3)], 35 * 168),
    cost("ResizeArea", [(1, 4, 5, 3), (2,)], [(1, 7, 8, 3)], 2 * 168),
    cost("ResizeArea", [(1, 7, 8, 3), (2,)], [(1, 4, 5, 3)], 2 * 168),
]

LINE = f32([0, 10, 20, 30]).reshape(1, 1, 4, 1)


def columns(op: str, x: np.ndarray, width: int, **attrs) -> list[float]:
    """One line of pixels, resized."""
    return run(op, x, i32(1, width), **attrs).ravel().tolist()


def test_positions_begin_at_the_corner() -> None:
    assert columns("ResizeBilinear", LINE, 8) == [0, 5, 10, 15, 20, 25, 30, 30]
    assert columns("ResizeBilinear", LINE, 2) == [0, 20]


def test_positions_may_be_those_of_centres() -> None:
    found = columns("ResizeBilinear", LINE, 8, half_pixel_centers=True)
    assert found == [0, 2.5, 7.5, 12.5, 17.5, 22.5, 27.5, 30]


def test_corners_may_stay_on_corners() -> None:
    found = columns("ResizeBilinear", LINE, 7, align_corners=True)
    assert found == [0, 5, 10, 15, 20, 25, 30]
    assert columns("ResizeBilinear", LINE, 1, align_corners=True) == [0]


def test_both_axes_are_interpolated() -> None:
    square = f32([[0, 2], [4, 6]]).reshape(1, 2, 2, 1)
    found = run("ResizeBilinear", square, i32(3, 3), align_corners=True)
    np.testing.assert_array_equal(found[0, :, :, 0], [[0, 1, 2], [2, 3, 4], [4, 5, 6]])


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.float16, np.float64])
def test_all_but_the_nearest_pixels_are_real(kind) -> None:
    pixels = LINE.astype(kind)
    assert run("ResizeBilinear", pixels, i32(1, 3)).dtype == np.float32
    assert run("ResizeBicubic", pixels, i32(1, 3)).dtype == np.float32
    assert run("ResizeArea", pixels, i32(1, 3)).dtype == np.float32
    assert run("ResizeNearestNeighbor", pixels, i32(1, 3)).dtype == kind


def test_nearest_pixels() -> None:
    assert columns("ResizeNearestNeighbor", LINE, 6) == [0, 0, 10, 20, 20, 30]
    assert columns("ResizeNearestNeighbor", LINE, 2, half_pixel_centers=True) == [10, 30]
    # The middle lies between two pixels: the half goes up.
    assert columns("ResizeNearestNeighbor", LINE, 3, align_corners=True) == [0, 20, 30]


def test_areas_are_means() -> None:
    assert columns("ResizeArea", LINE, 2) == [5, 25]
    np.testing.assert_allclose(columns("ResizeArea", LINE, 3), [2.5, 15, 27.5], rtol=1e-6)
    assert columns("ResizeArea", LINE, 8) == [0, 0, 10, 10, 20, 20, 30, 30]


def test_a_cubic_goes_through_the_pixels_and_beyond_them() -> None:
    step = f32([0, 0, 0, 8, 8, 8]).reshape(1, 1, 6, 1)
    found = columns("ResizeBicubic", step, 12)
    assert found[::2] == [0, 0, 0, 8, 8, 8]
    # With TensorFlow's sharper weights 0.59375 and -0.09375 half way between two pixels.
    np.testing.assert_allclose(found[3], -0.75, rtol=1e-6)
    np.testing.assert_allclose(found[5], 4, rtol=1e-6)


def test_keys_weights_go_with_centres() -> None:
    flat = np.full((1, 1, 4, 1), 3, np.float32)
    found = columns("ResizeBicubic", flat, 9, half_pixel_centers=True)
    np.testing.assert_allclose(found, [3] * 9, rtol=1e-6)


def test_an_image_of_the_same_size_is_not_touched() -> None:
    x = np.random.default_rng(0).random((2, 3, 5, 2), dtype=np.float32)
    np.testing.assert_array_equal(run("ResizeBilinear", x, i32(3, 5)), x)


@pytest.mark.parametrize("size", [(0, 3), (-1, 3), (1, 1, 1), (1 << 20, 1 << 20)])
def test_impossible_sizes_are_refused(size: tuple[int, ...]) -> None:
    with pytest.raises(InvalidGraphError, match="node 'y'"):
        run("ResizeBilinear", LINE, i32(list(size)))


def test_attributes_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(InvalidGraphError, match="exclude each other"):
        run("ResizeBilinear", LINE, i32(1, 2), align_corners=True, half_pixel_centers=True)


def test_images_need_four_axes_and_pixels() -> None:
    for shape in ((4, 4, 1), (1, 0, 4, 1)):
        with pytest.raises(InvalidGraphError, match="cannot run on float32"):
            run("ResizeBilinear", np.zeros(shape, np.float32), i32(2, 2))


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: OpCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()
