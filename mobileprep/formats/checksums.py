"""CRC-32C, plain and masked as TensorFlow stores it."""

from __future__ import annotations

from typing import Final

import google_crc32c
import numpy as np

from mobileprep.formats.cursor import Buffer

_UINT32: Final = (1 << 32) - 1
_MASK_DELTA: Final = 0xA282EAD8


def crc32c(data: Buffer, seed: int = 0) -> int:
    """The CRC-32C (Castagnoli) of bytes, nothing copied.

    Args:
        data: the bytes.
        seed: the checksum of the bytes before these, to go on from.
    """
    if not len(data):
        return seed
    # The library refuses memoryviews; an array over the same bytes it takes as it is.
    checksum: int = google_crc32c.extend(seed, np.frombuffer(data, dtype=np.uint8))
    return checksum


def mask(checksum: int) -> int:
    """A checksum in its stored form: rotated right by 15 bits, plus a constant (LevelDB).

    Bytes that hold their own checksum would otherwise give checksums of little worth.
    """
    rotated = (checksum >> 15) | (checksum << 17)
    return (rotated + _MASK_DELTA) & _UINT32


def masked_crc32c(data: Buffer, seed: int = 0) -> int:
    """The CRC-32C of bytes in its stored form; ``seed`` is a plain checksum."""
    return mask(crc32c(data, seed))
