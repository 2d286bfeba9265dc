"""Color ops on images."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32, i32, run

ADJUSTED = ["AdjustContrastv2", "AdjustHue", "AdjustSaturation"]
CONVERTED = ["RGBToHSV", "HSVToRGB"]

SHAPES = [
    *(shapes(op, [(-1, 5, 3)], [(-1, 5, 3)]) for op in CONVERTED),
    *(shapes(op, [(2, -1)], [(2, 3)]) for op in CONVERTED),
    *(shapes(op, [None], [None]) for op in CONVERTED),
    *(shapes(op, [(3,)], [(3,)]) for op in CONVERTED),
    *(shapes(op, [(2, 4)], None) for op in CONVERTED),
    *(shapes(op, [()], None) for op in CONVERTED),
    *(shapes(op, [(4, -1, 3), ()], [(4, -1, 3)]) for op in ADJUSTED),
    *(shapes(op, [None, ()], [None]) for op in ADJUSTED),
    *(shapes(op, [(5, 3), ()], None) for op in ADJUSTED),
    shapes("AdjustContrast", [(4, 5, 3), (), (), ()], [(4, 5, 3)]),
    shapes("AdjustContrast", [(5, 3), (), (), ()], None),
]

COSTS = [
    cost("RGBToHSV", [(2, 5, 3)], [(2, 5, 3)], 4 * 30),
    cost("HSVToRGB", [(2, 5, 3)], [(2, 5, 3)], 5 * 30),
    cost("AdjustContrastv2", [(2, 5, 3), ()], [(2, 5, 3)], 4 * 30),
    cost("AdjustHue", [(2, 5, 3), ()], [(2, 5, 3)], 10 * 30),
    cost("AdjustSaturation", [(2, 5, 3), ()], [(2, 5, 3)], 10 * 30),
]

PIXELS = np.random.default_rng(0).random((4, 5, 3), dtype=np.float32)
GRAYS = f32([[[0, 0, 0], [0.5, 0.5, 0.5], [1, 1, 1]]])


def by_pixel(function, images: np.ndarray) -> np.ndarray:
    flat = [function(*map(float, pixel)) for pixel in images.reshape(-1, 3)]
    return np.array(flat).reshape(images.shape)


@pytest.mark.parametrize("images", [PIXELS, GRAYS])
def test_rgb_to_hsv_and_back(images: np.ndarray) -> None:
    hsv = run("RGBToHSV", images)
    np.testing.assert_allclose(hsv, by_pixel(colorsys.rgb_to_hsv, images), atol=1e-6)
    np.testing.assert_allclose(run("HSVToRGB", hsv), images, atol=1e-6)


def test_adjust_hue() -> None:
    red = f32([[[1, 0, 0]]])
    np.testing.assert_allclose(run("AdjustHue", red, f32(1 / 3)), [[[0, 1, 0]]], atol=1e-6)
    np.testing.assert_allclose(run("AdjustHue", red, f32(-1 / 3)), [[[0, 0, 1]]], atol=1e-6)


def test_adjust_saturation() -> None:
    pale = f32([[[1, 0.5, 0.5]]])
    np.testing.assert_allclose(run("AdjustSaturation", pale, f32(0)), [[[1, 1, 1]]], atol=1e-6)
    np.testing.assert_allclose(run("AdjustSaturation", pale, f32(9)), [[[1, 0, 0]]], atol=1e-6)


def test_adjust_contrast() -> None:
    images = f32([[[0, 1], [2, 3]]])
    result = run("AdjustContrastv2", images, f32(2))
    np.testing.assert_allclose(result, [[[-1, 0], [3, 4]]], rtol=1e-6)


def test_rgb_to_hsv_needs_three_channels() -> None:
    with pytest.raises(InvalidGraphError, match="three channels"):
        run("RGBToHSV", PIXELS[..., :2])


def test_adjust_contrast_of_empty_image() -> None:
    empty = np.zeros((0, 3, 3), np.float32)
    assert run("AdjustContrastv2", empty, np.float32(2)).shape == (0, 3, 3)


ONE = {"ksizes": (1, 3, 2, 1), "strides": (1, 1, 1, 1), "rates": (1, 1, 1, 1), "padding": "VALID"}
WIDE = {**ONE, "strides": (1, 2, 3, 1), "rates": (1, 2, 3, 1)}
SAME = {**WIDE, "padding": "SAME"}
PATCHES = "ExtractImagePatches"

SHAPES += [
    shapes(PATCHES, [(4, 9, 8, 3)], [(4, 7, 7, 18)], **ONE),
    # windows of 5 rows and 4 columns, every 2 rows and 3 columns
    shapes(PATCHES, [(-1, 10, 8, 3)], [(-1, 3, 2, 18)], **WIDE),
    shapes(PATCHES, [(4, 9, 8, -1)], [(4, 5, 3, -1)], **SAME),
    shapes(PATCHES, [(4, -1, 8, 3)], [(4, -1, -1, 18)], **ONE),
    shapes(PATCHES, [(4, 9, -1, 3)], [(4, -1, -1, 18)], **ONE),
    # The output is empty for a window that is too large by less than two strides.
    shapes(PATCHES, [(4, 2, 8, 3)], [(4, 0, 7, 18)], **ONE),
    shapes(PATCHES, [(4, 1, 8, 3)], None, **ONE),
    shapes(PATCHES, [(9, 8, 3)], None, **ONE),
    shapes(PATCHES, [(4, 9, 8, 3)], None, **{**ONE, "ksizes": (1, 3, 2)}),
    shapes(PATCHES, [(4, 9, 8, 3)], None, **{**ONE, "strides": (1, 1, 1)}),
    shapes(PATCHES, [(4, 9, 8, 3)], None, **{**ONE, "rates": (1, 1, 1)}),
]

COSTS += [cost(PATCHES, [(4, 9, 8, 3)], [(4, 7, 7, 18)], 0, **ONE)]


def test_patches_of_empty_image() -> None:
    image, size = np.zeros((1, 3, 0, 4), np.float32), [1, 2, 1, 1]
    options = {"ksizes": size, "strides": size, "rates": [1, 1, 1, 1], "padding": "SAME"}
    assert run("ExtractImagePatches", image, **options).shape == (1, 2, 0, 8)


IMAGES, BOXES = (2, 9, 8, 3), (5, 4)
GLIMPSES = ["ExtractGlimpse", "ExtractGlimpseV2"]
DISTORTED = ["SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2"]

SHAPES += [
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

COSTS += [
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
