"""Keys that sort as the values they encode do: names and numbers of a stored slice.

Source: TensorFlow's ``ordered_code`` and the keys that its checkpoint writers make with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_SEPARATOR: Final = b"\0\1"


def slice_key(name: str, extents: Iterable[tuple[int, int]]) -> bytes:
    """The key under which a checkpoint holds one slice of a tensor.

    Args:
        name: the whole tensor's name.
        extents: start and length for each dimension, as stored; a length of -1 takes all of it.
    """
    numbers = list(extents)
    parts = [_number(0), _text(name.encode()), _number(len(numbers))]
    for start, length in numbers:
        parts += (_signed(start), _signed(length))
    return b"".join(parts)


def _text(value: bytes) -> bytes:
    """UTF-8 and a separator that no text holds; the other escape, of 255, UTF-8 never needs."""
    return value.replace(b"\0", b"\0\xff") + _SEPARATOR


def _number(value: int) -> bytes:
    """A length byte and the value in as few bytes as hold it, high byte first."""
    width = (value.bit_length() + 7) // 8
    return bytes([width]) + value.to_bytes(width, "big")


def _signed(value: int) -> bytes:
    """``width`` bytes, high byte first, of which the top ``width`` bits are flipped.

    After a sign bit they tell the width: seven bits a byte are left for the value.
    """
    width = (value if value >= 0 else ~value).bit_length() // 7 + 1
    header = ((1 << width) - 1) << (7 * width)
    return (value % (1 << 8 * width) ^ header).to_bytes(width, "big")
