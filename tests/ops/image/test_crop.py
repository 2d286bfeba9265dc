"""CropAndResize and ops on bounding boxes."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32, i32, run

IMAGES, BOXES = (2, 9, 8, 3), (5, 4)
GLIMPSES = ["ExtractGlimpse", "ExtractGlimpseV2"]
DISTORTED = ["SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2"]

SHAPES = [
    shapes("CropAndResize", [IMAGES, BOXES, (5,), [6, 7]], [(5, 6, 7, 3)]),
    shapes("CropAndResize", [IMAGES, (-1, 4), (5,), [6, 7]], [(5, 6, 7, 3)]),
    shapes("CropAndResize", [None, BOXES, None, (2,)], [(5, -1, -1, -1)]),
    shapes("CropAndResize", [IMAGES, BOXES, (6,), [6, 7]], None),
    shapes("CropAndResize", [IMAGES, (5, 3), (5,), [6, 7]], None),
    shapes("CropAndResize", [IMAGES, (20,), (5,), [6, 7]], None),
    shapes("CropAndResize", [IMAGES, BOXES, (5, 1), [6, 7]], None),
    shapes("CropAndResize", [(9, 8, 3), BOXES, (5,), [6, 7]], None),
    shapes("CropAndResize", [IMAGES, BOXES, (5,), [6, 7, 8]], None),
    shapes("CropAndResize", [IMAGES, BOXES, (5,), (2, 1)], None),
    *(shapes(op, [IMAGES, [6, 7], (2, 2)], [(2, 6, 7, 3)]) for op in GLIMPSES),
    *(shapes(op, [(-1, 9, 8, 3), (2,), (2, 2)], [(2, -1, -1, 3)]) for op in GLIMPSES),
    *(shapes(op, [IMAGES, [6, 7], (4, 2)], None) for op in GLIMPSES),
    *(shapes(op, [(9, 8, 3), [6, 7], (2, 2)], None) for op in GLIMPSES),
    *(shapes(op, [IMAGES, [6, 7], (2,)], None) for op in GLIMPSES),
    shapes("DrawBoundingBoxes", [IMAGES, (2, 5, 4)], [IMAGES]),
    shapes("DrawBoundingBoxesV2", [IMAGES, (2, 5, 4), (3, 3)], [IMAGES]),
    shapes("DrawBoundingBoxes", [None, (2, 5, 4)], [None]),
    shapes("DrawBoundingBoxes", [(8, 3), (2, 5, 4)], None),
    shapes(DISTORTED[0], [(3,), (1, 5, 4)], [(3,), (3,), (1, 1, 4)]),
    shapes(DISTORTED[1], [(3,), (1, 5, 4), ()], [(3,), (3,), (1, 1, 4)]),
]

COSTS = [
    cost("CropAndResize", [IMAGES, BOXES, (5,), (2,)], [(5, 6, 7, 3)], 9 * 630),
    cost("CropAndResize", [IMAGES, BOXES, (5,), (2,)], [(5, 6, 7, 3)], 0, method="nearest"),
    cost("CropAndResize", [IMAGES, BOXES, (5,), (2,)], [(5, 6, 7, 3)], 5670, method="bilinear"),
]

IMAGES = np.arange(18, dtype=np.float32).reshape(2, 3, 3, 1)
WHOLE = f32([[0, 0, 1, 1]])


def crop(boxes: np.ndarray, owners: np.ndarray, size: np.ndarray, **attrs) -> np.ndarray:
    return run("CropAndResize", IMAGES, boxes, owners, size, **attrs)


def test_crop_of_the_whole_image() -> None:
    np.testing.assert_array_equal(crop(WHOLE, i32([1]), i32(3, 3)), IMAGES[1:])


def test_crop_is_interpolated() -> None:
    result = crop(f32([[0, 0, 0.5, 0.5]]), i32([0]), i32(3, 3))
    rows = np.array([0, 0.5, 1])
    np.testing.assert_array_equal(result[0, :, :, 0], 3 * rows[:, None] + rows)


def test_crop_to_one_pixel_is_the_center() -> None:
    assert crop(WHOLE, i32([0]), i32(1, 1)).ravel().tolist() == [4]


def test_outside_is_extrapolated() -> None:
    result = crop(f32([[0, 0, 1, 2]]), i32([0]), i32(1, 3), extrapolation_value=-1.0)
    assert result.ravel().tolist() == [3, 5, -1]


def test_flipped_box() -> None:
    result = crop(f32([[1, 0, 0, 1]]), i32([0]), i32(3, 3))
    np.testing.assert_array_equal(result[0], IMAGES[0, ::-1])


def test_nearest_crop_rounds_up() -> None:
    result = crop(f32([[0, 0, 0, 0.25]]), i32([0]), i32(1, 2), method="nearest")
    assert result.ravel().tolist() == [0, 1]


def test_crop_is_float32() -> None:
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
def test_invalid_inputs_are_refused(boxes, owners, size) -> None:
    with pytest.raises(InvalidGraphError, match="node 'y'"):
        crop(boxes, owners, size)


def test_unknown_method_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="unknown method 'area'"):
        crop(WHOLE, i32([0]), i32(2, 2), method="area")


test_shapes_and_costs = case_tests(SHAPES, COSTS)
