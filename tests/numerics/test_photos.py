"""Pictures as inputs of networks."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.numerics.photos import Normalization, picture
from tests.ops.pictures import PIXELS, encoded


@pytest.mark.parametrize("kind", ["PNG", "BMP"])
def test_values_are_normalized(kind: str) -> None:
    found = picture(encoded(PIXELS, kind), Normalization(5, 7, 128, 64))
    assert (found.shape, found.dtype) == ((1, 5, 7, 3), np.float32)
    np.testing.assert_allclose(found[0], (PIXELS.astype(np.float32) - 128) / 64, rtol=1e-6)


def test_pictures_are_resized_from_the_corner() -> None:
    wide = np.arange(0, 80, 10, dtype=np.uint8).reshape(1, 8, 1).repeat(3, axis=2)
    found = picture(encoded(wide, "PNG"), Normalization(1, 4, 0, 1))
    assert found[0, 0, :, 0].tolist() == [0, 20, 40, 60]


@pytest.mark.parametrize("kind", ["JPEG", "GIF"])
def test_every_kind_of_picture_is_taken(kind: str) -> None:
    flat = np.full((8, 8, 3), 200, np.uint8)
    found = picture(encoded(flat, kind), Normalization(2, 2, 0, 1))
    assert np.abs(found - 200).max() <= 1


def test_grey_pictures_have_three_channels() -> None:
    assert picture(encoded(PIXELS[..., 0], "PNG"), Normalization(5, 7)).shape == (1, 5, 7, 3)


def test_what_is_no_picture_is_refused() -> None:
    with pytest.raises(CorruptFileError, match="no JPEG, PNG, GIF or BMP"):
        picture(b"text", Normalization(2, 2))


@pytest.mark.parametrize("wrong", [(0, 1, 0, 1), (1, 1 << 20, 0, 1), (1, 1, 0, 0)])
def test_impossible_normalizations_are_refused(wrong: tuple) -> None:
    with pytest.raises(UsageError):
        Normalization(*wrong)
