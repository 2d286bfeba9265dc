"""BMP decoding."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.ops.numerics.image_files import decode_bmp


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
