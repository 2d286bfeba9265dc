"""Encoded pictures: sizes, channels and depths, with numbers worked out by hand."""

from __future__ import annotations

import io

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.ops.numerics.image_files import (
    decode_gif,
    decode_jpeg,
    decode_png,
    image_kind,
    jpeg_shape,
)
from tests.ops.pictures import PIXELS, Image, encoded

# 0.299 * 200 + 0.587 * 100 + 0.114 * 50 = 124.2 in luminance.
FLAT = np.full((16, 24, 3), (200, 100, 50), np.uint8)
GREY = np.full((16, 24), 90, np.uint8)


def near(found: np.ndarray, expected: np.ndarray | int) -> bool:
    """Whether values are those that went in, but for what JPEG loses."""
    return int(np.abs(found.astype(int) - expected).max()) <= 2


def test_kinds_are_told_by_the_first_bytes() -> None:
    kinds = ["JPEG", "PNG", "GIF", "BMP"]
    assert [image_kind(encoded(FLAT, kind)) for kind in kinds] == kinds
    assert image_kind(b"text") == ""


def test_a_colour_jpeg() -> None:
    data = encoded(FLAT, "JPEG", quality=95)
    for channels in (0, 3):
        found = decode_jpeg(data, channels)
        assert (found.shape, found.dtype) == ((16, 24, 3), np.uint8)
        assert near(found, FLAT)
    grey = decode_jpeg(data, 1)
    assert grey.shape == (16, 24, 1)
    assert near(grey, 124)


def test_a_grey_jpeg() -> None:
    data = encoded(GREY, "JPEG", quality=95)
    for channels in (0, 1):
        found = decode_jpeg(data, channels)
        assert found.shape == (16, 24, 1)
        assert near(found, 90)
    coloured = decode_jpeg(data, 3)
    assert coloured.shape == (16, 24, 3)
    assert near(coloured, 90)


def test_the_shape_of_a_jpeg_is_height_width_channels() -> None:
    assert jpeg_shape(encoded(FLAT, "JPEG")) == (16, 24, 3)
    assert jpeg_shape(encoded(GREY, "JPEG")) == (16, 24, 1)


@pytest.mark.parametrize(("ratio", "shape"), [(2, (8, 12, 3)), (4, (4, 6, 3)), (8, (2, 3, 3))])
def test_a_jpeg_is_shrunk_while_it_is_decoded(ratio: int, shape: tuple[int, ...]) -> None:
    found = decode_jpeg(encoded(FLAT, "JPEG", quality=95), 3, ratio)
    assert found.shape == shape
    assert near(found, FLAT[: shape[0], : shape[1]])


def test_sides_that_a_ratio_does_not_divide_are_rounded_up() -> None:
    assert decode_jpeg(encoded(FLAT[:15, :17], "JPEG"), 3, 2).shape == (8, 9, 3)


@pytest.mark.parametrize(("channels", "ratio"), [(2, 1), (4, 1), (3, 3), (3, 0)])
def test_impossible_jpeg_options_are_refused(channels: int, ratio: int) -> None:
    with pytest.raises(ValueError, match="1 or 3 channels"):
        decode_jpeg(encoded(FLAT, "JPEG"), channels, ratio)


def test_the_channels_of_a_colour_png() -> None:
    data = encoded(PIXELS, "PNG")
    for channels in (0, 3):
        np.testing.assert_array_equal(decode_png(data, channels), PIXELS)
    four = decode_png(data, 4)
    np.testing.assert_array_equal(four[..., :3], PIXELS)
    assert four.shape == (5, 7, 4)
    assert np.unique(four[..., 3]).tolist() == [255]


def test_luminance_is_a_weighted_sum_that_is_cut() -> None:
    pure = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]], np.uint8)
    # 9798, 19235 and 3735 parts of 32768, so 76.2, 149.7 and 29.1.
    assert decode_png(encoded(pure, "PNG"), 1)[0, :, 0].tolist() == [76, 149, 29, 255]


def test_the_channels_of_a_grey_png() -> None:
    grey = PIXELS[..., 0]
    data = encoded(grey, "PNG")
    for channels in (0, 1):
        np.testing.assert_array_equal(decode_png(data, channels), grey[..., None])
    np.testing.assert_array_equal(decode_png(data, 3), np.stack([grey] * 3, axis=-1))
    np.testing.assert_array_equal(decode_png(data, 4)[..., 2], grey)


def test_transparency_is_kept_only_where_it_is_wanted() -> None:
    clear = np.dstack([PIXELS, PIXELS[..., 0]])
    data = encoded(clear, "PNG")
    for channels in (0, 4):
        np.testing.assert_array_equal(decode_png(data, channels), clear)
    np.testing.assert_array_equal(decode_png(data, 3), PIXELS)
    both = encoded(clear, "PNG", "LA")
    assert decode_png(both, 0).shape == (5, 7, 2)
    assert decode_png(both, 1).shape == (5, 7, 1)
    np.testing.assert_array_equal(decode_png(both, 4)[..., 3], PIXELS[..., 0])


def test_eight_bits_spread_over_sixteen() -> None:
    values = np.array([[0, 1, 128, 255]], np.uint8)
    found = decode_png(encoded(values, "PNG"), 1, wide=True)
    assert found.dtype == np.uint16
    assert found[0, :, 0].tolist() == [0, 257, 32896, 65535]


def test_sixteen_bits_are_kept_or_cut() -> None:
    values = np.array([[0, 255, 256, 65535]], np.uint16)
    data = encoded(values, "PNG")
    assert decode_png(data, 0, wide=True)[0, :, 0].tolist() == [0, 255, 256, 65535]
    narrow = decode_png(data, 0)
    assert narrow.dtype == np.uint8
    assert narrow[0, :, 0].tolist() == [0, 0, 1, 255]
    assert decode_png(data, 4, wide=True)[0, :, 3].tolist() == [65535] * 4


def test_palettes_and_single_bits_become_values() -> None:
    two = np.zeros((2, 2, 3), np.uint8)
    two[0] = 255
    for mode in ("P", "1"):
        found = decode_png(encoded(two, "PNG", mode), 3)
        np.testing.assert_array_equal(found, two)
    assert decode_png(encoded(two, "PNG", "1"), 0).shape == (2, 2, 1)


def test_two_channels_of_a_png_are_refused() -> None:
    with pytest.raises(ValueError, match="1, 3 or 4 channels, not 2"):
        decode_png(encoded(PIXELS, "PNG"), 2)


def gif(*levels: int) -> bytes:
    """A film of flat frames of 3 x 2 pixels."""
    frames = [Image.fromarray(np.full((2, 3), level, np.uint8)) for level in levels]
    stream = io.BytesIO()
    frames[0].save(stream, "GIF", save_all=True, append_images=frames[1:])
    return stream.getvalue()


def test_a_gif_has_all_its_frames_in_order() -> None:
    found = decode_gif(gif(10, 90, 200))
    assert (found.shape, found.dtype) == ((3, 2, 3, 3), np.uint8)
    assert found[:, 1, 2, 0].tolist() == [10, 90, 200]


def test_only_the_first_frame_where_no_more_is_wanted() -> None:
    found = decode_gif(gif(10, 90), first_only=True)
    assert found.shape == (1, 2, 3, 3)
    assert np.unique(found).tolist() == [10]


@pytest.mark.parametrize("decode", [lambda d: decode_jpeg(d, 3), lambda d: decode_png(d, 3)])
def test_damaged_files_are_refused(decode) -> None:
    for data in (b"", b"text", encoded(FLAT, "GIF")):
        with pytest.raises(CorruptFileError, match="its header is not understood"):
            decode(data)
    with pytest.raises(CorruptFileError, match="PNG image: is damaged"):
        decode_png(encoded(PIXELS, "PNG")[:-40], 3)


@pytest.mark.parametrize(
    ("bound", "decode", "told"),
    [
        ("_MOST_PIXELS", lambda: decode_jpeg(encoded(FLAT, "JPEG"), 3), "has 24 x 16 pixels"),
        ("_MOST_FRAMES_BYTES", lambda: decode_gif(gif(10, 90)), "2 frames of 3 x 2 pixels"),
    ],
)
def test_too_large_images_are_refused(monkeypatch, bound: str, decode, told: str) -> None:
    size = 24 * 16 if bound == "_MOST_PIXELS" else 2 * 3 * 2 * 3
    monkeypatch.setattr(f"mobileprep.ops.numerics.image_files.{bound}", size)
    decode()
    monkeypatch.setattr(f"mobileprep.ops.numerics.image_files.{bound}", size - 1)
    with pytest.raises(CorruptFileError, match=told):
        decode()
