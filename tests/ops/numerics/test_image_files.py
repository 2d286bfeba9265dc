"""Decoded images: sizes, channels, and depths, with values computed by hand."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.ops.numerics.image_files import (
    Normalization,
    central_crop,
    decode_bmp,
    decode_gif,
    decode_jpeg,
    decode_png,
    decoded,
    exif_orientation,
    image_kind,
    jpeg_shape,
    load_image,
)
from tests.ops.pictures import PIXELS, Image, encoded

# 0.299 * 200 + 0.587 * 100 + 0.114 * 50 = 124.2 in luminance.
FLAT = np.full((16, 24, 3), (200, 100, 50), np.uint8)
GRAY = np.full((16, 24), 90, np.uint8)


def near(pixels: np.ndarray, expected: np.ndarray | int) -> bool:
    """Whether pixels are equal, except for JPEG loss."""
    return int(np.abs(pixels.astype(int) - expected).max()) <= 2


def test_image_kind_is_detected_from_the_header() -> None:
    kinds = ["JPEG", "PNG", "GIF", "BMP"]
    assert [image_kind(encoded(FLAT, kind)) for kind in kinds] == kinds
    assert image_kind(b"text") == ""


def test_color_jpeg() -> None:
    data = encoded(FLAT, "JPEG", quality=95)
    for channels in (0, 3):
        result = decode_jpeg(data, channels)
        assert (result.shape, result.dtype) == ((16, 24, 3), np.uint8)
        assert near(result, FLAT)
    gray = decode_jpeg(data, 1)
    assert gray.shape == (16, 24, 1)
    assert near(gray, 124)


def test_gray_jpeg() -> None:
    data = encoded(GRAY, "JPEG", quality=95)
    for channels in (0, 1):
        result = decode_jpeg(data, channels)
        assert result.shape == (16, 24, 1)
        assert near(result, 90)
    colored = decode_jpeg(data, 3)
    assert colored.shape == (16, 24, 3)
    assert near(colored, 90)


def test_jpeg_shape() -> None:
    assert jpeg_shape(encoded(FLAT, "JPEG")) == (16, 24, 3)
    assert jpeg_shape(encoded(GRAY, "JPEG")) == (16, 24, 1)


@pytest.mark.parametrize(("ratio", "shape"), [(2, (8, 12, 3)), (4, (4, 6, 3)), (8, (2, 3, 3))])
def test_jpeg_with_ratio(ratio: int, shape: tuple[int, ...]) -> None:
    result = decode_jpeg(encoded(FLAT, "JPEG", quality=95), 3, ratio)
    assert result.shape == shape
    assert near(result, FLAT[: shape[0], : shape[1]])


def test_jpeg_with_ratio_rounds_up() -> None:
    assert decode_jpeg(encoded(FLAT[:15, :17], "JPEG"), 3, 2).shape == (8, 9, 3)


@pytest.mark.parametrize(("channels", "ratio"), [(2, 1), (4, 1), (3, 3), (3, 0)])
def test_invalid_jpeg_options_are_refused(channels: int, ratio: int) -> None:
    with pytest.raises(ValueError, match="1 or 3 channels"):
        decode_jpeg(encoded(FLAT, "JPEG"), channels, ratio)


def test_color_png_channels() -> None:
    data = encoded(PIXELS, "PNG")
    for channels in (0, 3):
        np.testing.assert_array_equal(decode_png(data, channels), PIXELS)
    four = decode_png(data, 4)
    np.testing.assert_array_equal(four[..., :3], PIXELS)
    assert four.shape == (5, 7, 4)
    assert np.unique(four[..., 3]).tolist() == [255]


def test_luminance_is_a_truncated_weighted_sum() -> None:
    pure = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]], np.uint8)
    # 9798, 19235, and 3735 of 32768, so 76.2, 149.7, and 29.1.
    assert decode_png(encoded(pure, "PNG"), 1)[0, :, 0].tolist() == [76, 149, 29, 255]


def test_gray_png_channels() -> None:
    gray = PIXELS[..., 0]
    data = encoded(gray, "PNG")
    for channels in (0, 1):
        np.testing.assert_array_equal(decode_png(data, channels), gray[..., None])
    np.testing.assert_array_equal(decode_png(data, 3), np.stack([gray] * 3, axis=-1))
    np.testing.assert_array_equal(decode_png(data, 4)[..., 2], gray)


def test_png_alpha_channel() -> None:
    clear = np.dstack([PIXELS, PIXELS[..., 0]])
    data = encoded(clear, "PNG")
    for channels in (0, 4):
        np.testing.assert_array_equal(decode_png(data, channels), clear)
    np.testing.assert_array_equal(decode_png(data, 3), PIXELS)
    both = encoded(clear, "PNG", "LA")
    assert decode_png(both, 0).shape == (5, 7, 2)
    assert decode_png(both, 1).shape == (5, 7, 1)
    np.testing.assert_array_equal(decode_png(both, 4)[..., 3], PIXELS[..., 0])


def test_8_bit_png_as_uint16() -> None:
    values = np.array([[0, 1, 128, 255]], np.uint8)
    result = decode_png(encoded(values, "PNG"), 1, wide=True)
    assert result.dtype == np.uint16
    assert result[0, :, 0].tolist() == [0, 257, 32896, 65535]


def test_16_bit_png() -> None:
    values = np.array([[0, 255, 256, 65535]], np.uint16)
    data = encoded(values, "PNG")
    assert decode_png(data, 0, wide=True)[0, :, 0].tolist() == [0, 255, 256, 65535]
    narrow = decode_png(data, 0)
    assert narrow.dtype == np.uint8
    assert narrow[0, :, 0].tolist() == [0, 0, 1, 255]
    assert decode_png(data, 4, wide=True)[0, :, 3].tolist() == [65535] * 4


def test_palette_and_binary_png() -> None:
    two = np.zeros((2, 2, 3), np.uint8)
    two[0] = 255
    for mode in ("P", "1"):
        result = decode_png(encoded(two, "PNG", mode), 3)
        np.testing.assert_array_equal(result, two)
    assert decode_png(encoded(two, "PNG", "1"), 0).shape == (2, 2, 1)


def test_png_with_two_channels_is_refused() -> None:
    with pytest.raises(ValueError, match="1, 3 or 4 channels, not 2"):
        decode_png(encoded(PIXELS, "PNG"), 2)


def gif(*levels: int) -> bytes:
    """A GIF of flat frames of 3 x 2 pixels."""
    frames = [Image.fromarray(np.full((2, 3), level, np.uint8)) for level in levels]
    stream = io.BytesIO()
    frames[0].save(stream, "GIF", save_all=True, append_images=frames[1:])
    return stream.getvalue()


def test_gif_frames() -> None:
    result = decode_gif(gif(10, 90, 200))
    assert (result.shape, result.dtype) == ((3, 2, 3, 3), np.uint8)
    assert result[:, 1, 2, 0].tolist() == [10, 90, 200]


def test_first_gif_frame() -> None:
    result = decode_gif(gif(10, 90), first_only=True)
    assert result.shape == (1, 2, 3, 3)
    assert np.unique(result).tolist() == [10]


@pytest.mark.parametrize("decode", [lambda d: decode_jpeg(d, 3), lambda d: decode_png(d, 3)])
def test_damaged_files_are_refused(decode) -> None:
    for data in (b"", b"text", encoded(FLAT, "GIF")):
        with pytest.raises(CorruptFileError, match="its header is not understood"):
            decode(data)
    with pytest.raises(CorruptFileError, match="PNG image: is damaged"):
        decode_png(encoded(PIXELS, "PNG")[:-40], 3)


@pytest.mark.parametrize(
    ("limit", "decode", "message"),
    [
        ("_MOST_PIXELS", lambda: decode_jpeg(encoded(FLAT, "JPEG"), 3), "has 24 x 16 pixels"),
        ("_MOST_FRAMES_BYTES", lambda: decode_gif(gif(10, 90)), "2 frames of 3 x 2 pixels"),
    ],
)
def test_too_large_images_are_refused(monkeypatch, limit: str, decode, message: str) -> None:
    size = 24 * 16 if limit == "_MOST_PIXELS" else 2 * 3 * 2 * 3
    monkeypatch.setattr(f"mobileprep.ops.numerics.image_files.{limit}", size)
    decode()
    monkeypatch.setattr(f"mobileprep.ops.numerics.image_files.{limit}", size - 1)
    with pytest.raises(CorruptFileError, match=message):
        decode()


def bmp(rows: list[bytes], width: int, bits: int, *, height: int | None = None) -> bytes:
    """An uncompressed BMP file of rows, padded to four bytes."""
    body = b"".join(row + b"\0" * (-len(row) % 4) for row in rows)
    tall = len(rows) if height is None else height
    header = struct.pack("<2sIHHI", b"BM", 54 + len(body), 0, 0, 54)
    header += struct.pack("<IiiHHIIiiII", 40, width, tall, 1, bits, 0, len(body), 0, 0, 0, 0)
    return header + body


def test_rows_are_bottom_up_and_colors_are_bgr() -> None:
    data = bmp([b"\x01\x02\x03", b"\x04\x05\x06"], 1, 24)
    np.testing.assert_array_equal(decode_bmp(data, 0), [[[6, 5, 4]], [[3, 2, 1]]])


def test_top_down_rows() -> None:
    data = bmp([b"\x01\x02\x03", b"\x04\x05\x06"], 1, 24, height=-2)
    np.testing.assert_array_equal(decode_bmp(data, 3), [[[3, 2, 1]], [[6, 5, 4]]])


def test_alpha_channel() -> None:
    four = bmp([b"\x01\x02\x03\x09"], 1, 32)
    np.testing.assert_array_equal(decode_bmp(four, 0), [[[3, 2, 1, 9]]])
    np.testing.assert_array_equal(decode_bmp(four, 3), [[[3, 2, 1]]])
    three = bmp([b"\x01\x02\x03"], 1, 24)
    np.testing.assert_array_equal(decode_bmp(three, 4), [[[3, 2, 1, 255]]])


def test_grayscale() -> None:
    data = bmp([b"\x07\x08"], 2, 8)
    np.testing.assert_array_equal(decode_bmp(data, 0), [[[7], [8]]])
    np.testing.assert_array_equal(decode_bmp(data, 4), [[[7, 7, 7, 255], [8, 8, 8, 255]]])


@pytest.mark.parametrize(
    "data",
    [
        b"BM",
        bmp([b"\1\2\3"], 1, 24)[:-1],
        bmp([b"\1\2\3"], 1, 24) + b"\0",
        bmp([b"\1\2\3"], 0, 24),
        bmp([b"\1\2\3"], 1, 16),
        bmp([b"\1\2\3"], 1, 24, height=0),
        bmp([b"\1\2\3"], 1 << 30, 24, height=1 << 30),
    ],
)
def test_invalid_files_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match=r"^BMP image: \S"):
        decode_bmp(data, 0)


@pytest.mark.parametrize("kind", ["PNG", "BMP"])
def test_image_is_normalized(kind: str) -> None:
    result = load_image(encoded(PIXELS, kind), Normalization(5, 7, 128, 64))
    assert (result.shape, result.dtype) == ((1, 5, 7, 3), np.float32)
    np.testing.assert_allclose(result[0], (PIXELS.astype(np.float32) - 128) / 64, rtol=1e-6)


def test_image_is_resized_from_the_corner() -> None:
    wide = np.arange(0, 80, 10, dtype=np.uint8).reshape(1, 8, 1).repeat(3, axis=2)
    result = load_image(encoded(wide, "PNG"), Normalization(1, 4, 0, 1))
    assert result[0, 0, :, 0].tolist() == [0, 20, 40, 60]


@pytest.mark.parametrize("kind", ["JPEG", "GIF"])
def test_every_image_kind_is_read(kind: str) -> None:
    flat = np.full((8, 8, 3), 200, np.uint8)
    result = load_image(encoded(flat, kind), Normalization(2, 2, 0, 1))
    assert np.abs(result - 200).max() <= 1


def test_gray_image_has_three_channels() -> None:
    assert load_image(encoded(PIXELS[..., 0], "PNG"), Normalization(5, 7)).shape == (1, 5, 7, 3)


def test_unknown_image_format_is_refused() -> None:
    with pytest.raises(CorruptFileError, match="not a JPEG, PNG, GIF, or BMP"):
        load_image(b"text", Normalization(2, 2))


@pytest.mark.parametrize("wrong", [(0, 1, 0, 1), (1, 1 << 20, 0, 1), (1, 1, 0, 0)])
def test_invalid_normalization_is_refused(wrong: tuple) -> None:
    with pytest.raises(UsageError):
        Normalization(*wrong)


@pytest.mark.parametrize(
    ("share", "rows", "columns"),
    [
        (1.0, (0, 11), (0, 8)),
        (0.5, (2, 9), (2, 6)),
        (0.875, (0, 11), (0, 8)),
        (0.7, (1, 10), (1, 7)),
    ],
)
def test_central_crop_matches_tensorflow(share, rows, columns) -> None:
    pixels = np.arange(11 * 8 * 3).reshape(11, 8, 3)
    expected = pixels[slice(*rows), slice(*columns)]
    np.testing.assert_array_equal(central_crop(pixels, share), expected)


def test_bmp_luminance_matches_rgb_to_grayscale() -> None:
    result = decoded(encoded(PIXELS, "BMP"), 1)
    weighted = PIXELS @ np.array([0.2989, 0.5870, 0.1140])
    assert result.shape == (5, 7, 1)
    # Values are truncated after adding half of 1/255, as in convert_image_dtype.
    np.testing.assert_allclose(result[..., 0], weighted, atol=1.0)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_image_kind_is_decoded_with_channels(kind: str, channels: int) -> None:
    assert decoded(encoded(PIXELS, kind), channels).shape == (5, 7, channels)


def oriented(orientation: int | None, kind: str = "JPEG") -> bytes:
    """An image file with an EXIF orientation."""
    image = pytest.importorskip("PIL.Image")
    exif = image.Exif()
    exif[0x010F] = "a camera"
    if orientation is not None:
        exif[0x0112] = orientation
    stream = io.BytesIO()
    image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(stream, kind, exif=exif)
    return stream.getvalue()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(orientation: int) -> None:
    assert exif_orientation(oriented(orientation)) == orientation


def test_default_exif_orientation() -> None:
    photo = oriented(6)
    assert exif_orientation(oriented(None)) == 1
    assert exif_orientation(encoded(PIXELS, "JPEG")) == 1
    assert exif_orientation(encoded(PIXELS, "PNG")) == 1
    assert exif_orientation(b"") == 1
    assert {exif_orientation(photo[:length]) for length in range(len(photo))} <= {1, 6}
