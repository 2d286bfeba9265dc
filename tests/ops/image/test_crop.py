"""Boxes cut out of images."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.graphs import f32, i32, run

IMAGES = np.arange(18, dtype=np.float32).reshape(2, 3, 3, 1)
WHOLE = f32([[0, 0, 1, 1]])


def crop(boxes: np.ndarray, owners: np.ndarray, size: np.ndarray, **attrs) -> np.ndarray:
    return run("CropAndResize", IMAGES, boxes, owners, size, **attrs)


def test_the_whole_image_is_a_box() -> None:
    np.testing.assert_array_equal(crop(WHOLE, i32([1]), i32(3, 3)), IMAGES[1:])


def test_boxes_are_interpolated() -> None:
    found = crop(f32([[0, 0, 0.5, 0.5]]), i32([0]), i32(3, 3))
    rows = np.array([0, 0.5, 1])
    np.testing.assert_array_equal(found[0, :, :, 0], 3 * rows[:, None] + rows)


def test_a_crop_of_one_pixel_is_the_middle() -> None:
    assert crop(WHOLE, i32([0]), i32(1, 1)).ravel().tolist() == [4]


def test_what_is_outside_is_extrapolated() -> None:
    found = crop(f32([[0, 0, 1, 2]]), i32([0]), i32(1, 3), extrapolation_value=-1.0)
    assert found.ravel().tolist() == [3, 5, -1]


def test_boxes_may_be_turned_over() -> None:
    found = crop(f32([[1, 0, 0, 1]]), i32([0]), i32(3, 3))
    np.testing.assert_array_equal(found[0], IMAGES[0, ::-1])


def test_the_nearest_pixels_halves_upwards() -> None:
    found = crop(f32([[0, 0, 0, 0.25]]), i32([0]), i32(1, 2), method="nearest")
    assert found.ravel().tolist() == [0, 1]


def test_every_type_becomes_real() -> None:
    out = run("CropAndResize", IMAGES.astype(np.uint8), WHOLE, i32([0]), i32(2, 2))
    assert out.dtype == np.float32


@pytest.mark.parametrize(
    ("boxes", "owners", "size"),
    [
        (WHOLE, i32([2]), i32(2, 2)),
        (WHOLE, i32([-1]), i32(2, 2)),
        (WHOLE, i32([0]), i32(0, 2)),
        (WHOLE, i32([0, 1]), i32(2, 2)),
        (WHOLE, i32([0]), i32([2])),
        (WHOLE, i32([0]), i32(1 << 16, 1 << 16)),
    ],
)
def test_inputs_that_do_not_fit_are_refused(boxes, owners, size) -> None:
    with pytest.raises(InvalidGraphError, match="node 'y'"):
        crop(boxes, owners, size)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="no method 'area'"):
        crop(WHOLE, i32([0]), i32(2, 2), method="area")
