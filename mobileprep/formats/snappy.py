"""Raw snappy blocks, their declared length checked before anything is allocated."""

from __future__ import annotations

from typing import Final

from mobileprep.errors import CorruptFileError
from mobileprep.formats.cursor import Cursor

# The densest element of the format, a copy with a two-byte offset: 64 bytes out of 3.
_MOST_OUT: Final = 64
_FROM: Final = 3
# No block holds more than one message, and protobuf ends at 2 GiB.
_LARGEST: Final = 1 << 31


def decompress(block: memoryview, where: str) -> bytearray:
    """The bytes that a raw snappy block stands for.

    Args:
        block: the compressed bytes, which begin with the decompressed length.
        where: their place, for messages.

    Raises:
        CorruptFileError: the length is beyond what the format can reach, or the block is damaged.
    """
    import cramjam  # a large library, and compressed checkpoints are rare

    cursor = Cursor(block, file=where)
    length = cursor.varint()
    if length > min((len(block) - cursor.position) * _MOST_OUT // _FROM, _LARGEST):
        msg = f"{len(block)} compressed bytes declare {length}, more than they can stand for"
        raise cursor.corrupt(msg)
    out = bytearray(length)
    try:
        written = cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as error:
        msg = f"is no snappy block: {error}"
        raise CorruptFileError(msg, "write the file anew", where) from error
    if written != length:
        msg = f"{length} decompressed bytes are declared where {written} come out"
        raise cursor.corrupt(msg)
    return out
