"""A FlexBuffers vector of two strings, of which the second may be any bytes.

The library's own strings are text. Source: the layout of FlexBuffers ("FlexBuffer internals"), here
with sizes and offsets of 32 bits throughout.
"""

from __future__ import annotations

import struct
from typing import Final

_WIDTH: Final = 4
_WIDTH_BITS: Final = 2
_STRING: Final = 5 << 2 | _WIDTH_BITS
_VECTOR: Final = 10 << 2 | _WIDTH_BITS


def string_pair(first: str, second: bytes) -> bytes:
    """The bytes of a vector of two strings."""
    buffer = bytearray()
    places = []
    for content in (first.encode(), second):
        buffer += struct.pack("<I", len(content))
        places.append(len(buffer))
        buffer += content + b"\0"
        buffer += bytes(-len(buffer) % _WIDTH)
    buffer += struct.pack("<I", len(places))
    vector = len(buffer)
    for place in places:
        # Offsets are counted backwards from where they stand.
        buffer += struct.pack("<I", len(buffer) - place)
    buffer += bytes((_STRING, _STRING))
    buffer += bytes(-len(buffer) % _WIDTH)
    buffer += struct.pack("<I", len(buffer) - vector)
    return bytes(buffer) + bytes((_VECTOR, _WIDTH))
