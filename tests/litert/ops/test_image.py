"""Images: resizing, blocks of pixels, boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from tests.litert.one_op import check, integers, numbers


@pytest.mark.parametrize("kind", ["ResizeBilinear", "ResizeNearestNeighbor"])
@pytest.mark.parametrize("size", [(7, 9), (3, 2), (10, 12)])
@pytest.mark.parametrize(("align", "centers"), [(False, False), (True, False), (False, True)])
def test_resizing(kind: str, size: tuple[int, int], align: bool, centers: bool) -> None:
    values = [numbers(2, 5, 6, 3), np.array(size, np.int32)]
    attrs = {"align_corners": align, "half_pixel_centers": centers}
    # Weights of neighbors are differences of coordinates, rounded before they are scaled.
    check(kind, values, constant=[1], tolerance=1e-5, **attrs)


def test_bilinear_resizing_of_uint8_returns_floats() -> None:
    values = [integers(1, 4, 4, 3, low=0, dtype=np.uint8), np.array([8, 8], np.int32)]
    assert check("ResizeBilinear", values, constant=[1]) == ["CAST", "RESIZE_BILINEAR"]


def test_space_to_depth_and_back() -> None:
    assert check("SpaceToDepth", [numbers(2, 4, 6, 3)], block_size=2) == ["SPACE_TO_DEPTH"]
    assert check("DepthToSpace", [numbers(2, 2, 3, 12)], block_size=2) == ["DEPTH_TO_SPACE"]


def boxes() -> tuple[np.ndarray, np.ndarray]:
    corners = abs(numbers(12, 2)) * 3
    return np.concatenate([corners, corners + 2], 1), numbers(12, seed=5)


@pytest.mark.parametrize("kind", ["NonMaxSuppressionV2", "NonMaxSuppressionV3"])
def test_non_max_suppression(kind: str) -> None:
    corners, scores = boxes()
    values = [corners, scores, np.int32(5), np.float32(0.3)]
    if kind.endswith("3"):
        values.append(np.float32(-0.2))
    check(kind, values, constant=[2, 3, 4])


@pytest.mark.parametrize("padded", [False, True])
def test_non_max_suppression_with_a_count(padded: bool) -> None:
    corners, scores = boxes()
    values = [corners, scores, np.int32(9), np.float32(0.3), np.float32(0)]
    attrs = {"pad_to_max_output_size": padded}
    check("NonMaxSuppressionV4", values, constant=[2, 3, 4], outputs=2, **attrs)


@pytest.mark.parametrize("sigma", [0, 0.5])
def test_soft_non_max_suppression(sigma: float) -> None:
    corners, scores = boxes()
    values = [corners, scores, np.int32(9), np.float32(0.3), np.float32(0), np.float32(sigma)]
    attrs = {"pad_to_max_output_size": False}
    check("NonMaxSuppressionV5", values, constant=[2, 3, 4, 5], outputs=3, **attrs)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("rates", [1, 2])
@pytest.mark.parametrize("strides", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_patches(padding: str, rates: int, strides: int, dtype: type) -> None:
    check(
        "ExtractImagePatches",
        [numbers(2, 9, 8, 3).astype(dtype)],
        padding=padding,
        ksizes=[1, 3, 2, 1],
        strides=[1, strides, strides, 1],
        rates=[1, rates, rates, 1],
    )


def test_patches_of_unknown_image_size_are_refused() -> None:
    ones = [1, 1, 1, 1]
    attrs: dict[str, Any] = {
        "ksizes": [1, 3, 3, 1],
        "strides": ones,
        "rates": ones,
        "padding": "SAME",
    }
    with pytest.raises(UnsupportedError, match="the size of its image is not known"):
        check("ExtractImagePatches", [numbers(1, 6, 6, 2)], open_sizes=3, **attrs)


def test_suppression_with_zero_outputs() -> None:
    boxes, scores = np.float32([[0, 0, 1, 1], [2, 2, 3, 3]]), np.float32([0.9, 0.8])
    more = [np.int32(0), np.float32(0.5), np.float32(0.1)]
    check("NonMaxSuppressionV3", [boxes, scores, *more], constant=[2, 3, 4])


COLORS = np.concatenate(
    [
        np.random.default_rng(7).random((2, 5, 6, 3), np.float32),
        np.full((1, 5, 6, 3), 0.5, np.float32),
        np.zeros((1, 5, 6, 3), np.float32),
        np.eye(3, dtype=np.float32)[None, :, None].repeat(6, 2)[:, [0, 1, 2, 0, 1]],
    ]
)


@pytest.mark.parametrize("open_sizes", [0, 3])
@pytest.mark.parametrize("change", [-1.0, -0.3, 0.0, 0.15, 0.5, 1.0])
def test_adjust_hue(change: float, open_sizes: int) -> None:
    check("AdjustHue", [COLORS, np.float32(change)], open_sizes=open_sizes, tolerance=1e-5)


@pytest.mark.parametrize("open_sizes", [0, 3])
@pytest.mark.parametrize("change", [0.0, 0.4, 1.0, 1.7, 30.0])
@pytest.mark.parametrize("kind", ["AdjustSaturation", "AdjustContrastv2"])
def test_saturation_and_contrast(kind: str, change: float, open_sizes: int) -> None:
    check(kind, [COLORS, np.float32(change)], open_sizes=open_sizes, tolerance=1e-5)


def test_colors_with_unknown_number_of_channels_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="channels"):
        check("AdjustHue", [COLORS, np.float32(0.1)], open_sizes=4)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("size", [(3, 4), (9, 5), (7, 16)])
def test_resize_area(size: tuple[int, int], aligned: bool) -> None:
    values = [numbers(2, 7, 8, 3), np.int32(size)]
    check("ResizeArea", values, constant=[1], align_corners=aligned)
    check("ResizeArea", values, constant=[1], open_sizes=1, align_corners=aligned)
