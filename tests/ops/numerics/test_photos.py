"""Images as inputs of networks."""

from __future__ import annotations

import io

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.ops.numerics.image_files import (
    Normalization,
    central_crop,
    decoded,
    exif_orientation,
    load_image,
)
from tests.ops.pictures import PIXELS, encoded


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
