"""Files stored in parts: an index lists the digests of the parts and the bytes between them.

An index has a line with its kind, the number of parts, the SHA-256 and length of each, and a
body. For files, the body is the bytes between parts; for graphs, see `graph/files.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final

from msgspec import Meta, Struct

from mobileprep.errors import CorruptFileError
from mobileprep.formats.wire import Buffer, Cursor, encode_varint

GRAPH: Final = b"mobileprep graph 1\n"
FILE: Final = b"mobileprep file  1\n"
_COUNT: Final = struct.Struct("<I")
_PART: Final = struct.Struct("<32sQ")


Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
"""A SHA-256 in hexadecimal."""


class Part(Struct, frozen=True):
    """Bytes in a separate file: their SHA-256 and their length."""

    sha256: Digest
    size: Annotated[int, Meta(ge=0)]


def index_bytes(kind: bytes, parts: Sequence[Part], body: Iterable[Buffer]) -> bytes:
    """Return an index of parts with a body; ``kind`` is ``GRAPH`` or ``FILE``."""
    rows = [_PART.pack(bytes.fromhex(part.sha256), part.size) for part in parts]
    return b"".join([kind, _COUNT.pack(len(parts)), *rows, *body])


def index_kind(data: Buffer) -> bytes | None:
    """Return the kind of an index, ``GRAPH`` or ``FILE``; None for other data."""
    head = bytes(data[: len(GRAPH)])
    return head if head in (GRAPH, FILE) else None


def read_index(
    data: Buffer, file: str, kind: bytes | None = None
) -> tuple[tuple[Part, ...], memoryview]:
    """Return the parts and the body of an index."""
    view = memoryview(data)
    head = len(GRAPH) + _COUNT.size
    actual = index_kind(view)
    if actual is None or kind not in (None, actual) or len(view) < head:
        message = "is not an index of parts"
        raise CorruptFileError(message, "the file is damaged or of another kind", file)
    (count,) = _COUNT.unpack_from(view, len(GRAPH))
    end = head + count * _PART.size
    if end > len(view):
        message = f"names {count} parts and has no room for them"
        raise CorruptFileError(message, "the file is damaged", file)
    parts = tuple(Part(digest.hex(), size) for digest, size in _PART.iter_unpack(view[head:end]))
    return parts, view[end:]


def between_bytes(pieces: Iterable[Buffer | Part]) -> bytes:
    """Return the index of a file; its body contains the bytes between parts."""
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
    return index_bytes(FILE, parts, body)


def read_between(data: Buffer, file: str) -> Iterator[memoryview | Part]:
    """Yield the pieces of a file, in order, from an index created by ``between_bytes``."""
    parts, body = read_index(data, file, FILE)
    cursor = Cursor(body, file=file)
    for part in (*parts, None):
        length = cursor.varint()
        start = cursor.position
        cursor.skip(length)
        if length:
            yield body[start : cursor.position]
        if part is not None:
            yield part
