"""Files kept in parts: an index names the parts by their digests, and holds what lies between them.

An index is ``mobileprep parts 1``, the number of parts, for each its sha256 and its length, and
then a body whose meaning is its reader's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mobileprep.errors import CorruptFileError
from mobileprep.formats.cursor import Buffer, Cursor
from mobileprep.formats.wire import encode_varint

_MAGIC: Final = b"mobileprep parts 1\n"
_COUNT: Final = struct.Struct("<I")
_PART: Final = struct.Struct("<32sQ")


@dataclass(frozen=True, slots=True)
class Part:
    """A run of bytes that lies elsewhere: its sha256 in hex, and its length."""

    sha256: str
    size: int


def index_bytes(parts: Sequence[Part], body: Iterable[Buffer]) -> bytes:
    """An index of parts with a body."""
    rows = [_PART.pack(bytes.fromhex(part.sha256), part.size) for part in parts]
    return b"".join([_MAGIC, _COUNT.pack(len(parts)), *rows, *body])


def is_index(data: Buffer) -> bool:
    """Whether bytes begin as an index does."""
    return bytes(data[: len(_MAGIC)]) == _MAGIC


def read_index(data: Buffer, file: str) -> tuple[tuple[Part, ...], memoryview]:
    """The parts that an index names, and its body.

    Raises:
        CorruptFileError: the bytes are no index, or end within the list of parts.
    """
    view = memoryview(data)
    head = len(_MAGIC) + _COUNT.size
    if not is_index(view) or len(view) < head:
        message = "is no index of parts"
        raise CorruptFileError(message, "the file is damaged or of another kind", file)
    (count,) = _COUNT.unpack_from(view, len(_MAGIC))
    end = head + count * _PART.size
    if end > len(view):
        message = f"names {count} parts and has no room for them"
        raise CorruptFileError(message, "the file is damaged", file)
    parts = tuple(Part(digest.hex(), size) for digest, size in _PART.iter_unpack(view[head:end]))
    return parts, view[end:]


def between_bytes(pieces: Iterable[Buffer | Part]) -> bytes:
    """The index of a file made of pieces: its body is the bytes between parts."""
    parts: list[Part] = []
    body: list[Buffer] = []
    run: list[Buffer] = []

    def close() -> None:
        body.append(encode_varint(sum(map(len, run))))
        body.extend(run)
        run.clear()

    for piece in pieces:
        if isinstance(piece, Part):
            close()
            parts.append(piece)
        else:
            run.append(piece)
    close()
    return index_bytes(parts, body)


def read_between(data: Buffer, file: str) -> Iterator[memoryview | Part]:
    """The pieces of a file, in order, from the index that ``between_bytes`` made.

    Raises:
        CorruptFileError: the index is damaged.
    """
    parts, body = read_index(data, file)
    cursor = Cursor(body, file=file)
    for part in (*parts, None):
        length = cursor.varint()
        start = cursor.position
        cursor.skip(length)
        if length:
            yield body[start : cursor.position]
        if part is not None:
            yield part
