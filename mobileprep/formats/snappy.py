"""Decoder of raw Snappy blocks, which checks the declared length before it allocates memory.

The format: https://github.com/google/snappy/blob/main/format_description.txt
"""

from __future__ import annotations

from typing import Final

from mobileprep.formats.cursor import Cursor

# The densest element of the format, a copy with a two-byte offset: 64 bytes out of 3.
_MOST_OUT: Final = 64
_FROM: Final = 3
# No block holds more than one message, and protobuf ends at 2 GiB.
_LARGEST: Final = 1 << 31
# Longer literals have their length in 1 to 4 bytes behind the tag.
_INLINE_LITERAL: Final = 60
_LITERAL, _COPY_1 = 0, 1


def decompress(block: memoryview, where: str) -> bytearray:
    """Decompress a raw Snappy block.

    Args:
        block: the compressed bytes, which begin with the decompressed length.
        where: the block's file and position, for messages.

    Raises:
        CorruptFileError: the length is beyond what the format can reach, or the block is damaged.
    """
    cursor = Cursor(block, file=where)
    length = cursor.varint()
    if length > min((len(block) - cursor.position) * _MOST_OUT // _FROM, _LARGEST):
        msg = f"{len(block)} compressed bytes declare {length}, more than they can stand for"
        raise cursor.corrupt(msg)
    out = bytearray(length)
    size = 0
    while cursor:
        tag = cursor.fixed(1)
        offset, count = _element(cursor, tag)
        if count > length - size or offset > size:
            msg = f"a Snappy element leaves the {length} bytes that the block declares"
            raise cursor.corrupt(msg)
        if tag & 3 == _LITERAL:
            out[size : size + count] = cursor.take(count)
        elif offset >= count:
            out[size : size + count] = out[size - offset : size - offset + count]
        else:  # the copy overlaps its own result: a repeated pattern
            pattern = out[size - offset : size]
            out[size : size + count] = (pattern * (count // offset + 1))[:count]
        size += count
    if size != length:
        msg = f"{length} decompressed bytes are declared where {size} come out"
        raise cursor.corrupt(msg)
    return out


def _element(cursor: Cursor, tag: int) -> tuple[int, int]:
    """Return the offset (0 for a literal) and the number of bytes of an element."""
    kind = tag & 3
    if kind == _LITERAL:
        short = tag >> 2
        return 0, 1 + (short if short < _INLINE_LITERAL else cursor.fixed(short - 59))
    if kind == _COPY_1:
        offset, count = (tag >> 5) << 8 | cursor.fixed(1), 4 + (tag >> 2 & 7)
    else:
        offset, count = cursor.fixed(2 if kind == 2 else 4), 1 + (tag >> 2)
    if not offset:
        msg = "a Snappy copy has the offset 0"
        raise cursor.corrupt(msg)
    return offset, count
