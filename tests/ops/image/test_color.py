"""Color ops on images."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32, run

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
GREYS = f32([[[0, 0, 0], [0.5, 0.5, 0.5], [1, 1, 1]]])


def by_pixel(function, images: np.ndarray) -> np.ndarray:
    flat = [function(*map(float, pixel)) for pixel in images.reshape(-1, 3)]
    return np.array(flat).reshape(images.shape)


@pytest.mark.parametrize("images", [PIXELS, GREYS])
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


test_shapes_and_costs = case_tests(SHAPES, COSTS)


def test_adjust_contrast_of_empty_image() -> None:
    empty = np.zeros((0, 3, 3), np.float32)
    assert run("AdjustContrastv2", empty, np.float32(2)).shape == (0, 3, 3)
