"""Sorted string tables: LevelDB's file of sorted keys, as TensorFlow writes it.

A table has data blocks, an index block with the location of each data block and a key between it
and the next, and a footer of fixed size with the location of the index block. Each block is
followed by its compression type and a masked CRC-32C of both. In a block, each key is stored as its
difference from the previous one. Source: LevelDB's ``table_format`` document.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.formats.checksums import masked_crc32c
from mobileprep.formats.wire import Cursor

MAGIC: Final = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER: Final = 48
_TRAILER: Final = 5  # Compression type and masked checksum.
_PLAIN, _SNAPPY = 0, 1
_NAMED_TYPES: Final = {2: "zstd or zlib"}

# Writers store a whole key every 16 entries, which bounds the size of the keys of a block. Without
# this limit, a small malicious block could represent gigabytes of keys.
_KEY_GROWTH: Final = 16
_KEY_BYTES: Final = 1 << 20


class _Handle(Struct, frozen=True):
    """The location of a block; ``size`` is its length in bytes without the trailer."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size + _TRAILER


class SortedTable:
    """The entries of a table, by key or in order.

    Args:
        data: the whole file.
        file: name of the file, for messages.

    Raises:
        CorruptFileError: if the footer or the index is damaged, or the file is not a table.
        UnsupportedError: if the compression of the index is unknown.
    """

    def __init__(self, data: memoryview, file: str) -> None:
        self._data = data
        self._file = file
        self._separators: list[bytes] = []
        self._handles: list[_Handle] = []
        self._latest: tuple[int, dict[bytes, memoryview]] = (-1, {})
        self._read_index(self._read_footer())

    def __iter__(self) -> Iterator[tuple[bytes, memoryview]]:
        """Yield every key and value, in the order of the keys."""
        for index in range(len(self._handles)):
            yield from self._block_entries(index).items()

    def get(self, key: bytes) -> memoryview | None:
        """Return the value of a key, or None; a view of the file unless the block is compressed."""
        index = bisect_left(self._separators, key)
        if index == len(self._handles):
            return None
        if self._latest[0] != index:  # Successive keys are often in the same block.
            self._latest = (index, self._block_entries(index))
        return self._latest[1].get(key)

    def _read_footer(self) -> _Handle:
        """Return the location of the index block."""
        start = len(self._data) - _FOOTER
        if start < 0 or self._data[-len(MAGIC) :] != MAGIC:
            msg = "is not a checkpoint table: it does not end with a table footer"
            hint = "the file is truncated, or of another kind"
            raise CorruptFileError(msg, hint, self._file)
        cursor = Cursor(self._data, start, len(self._data) - len(MAGIC), file=self._file)
        meta_index = self._handle(cursor, start)
        index = self._handle(cursor, start)
        # The meta index is not used, but an invalid location shows that the footer is damaged.
        self._block(meta_index)
        return index

    def _read_index(self, handle: _Handle) -> None:
        free = 0
        for separator, value in self._entries(self._block(handle), handle):
            block = self._handle(Cursor(value, file=self._block_name(handle)), handle.offset)
            if block.offset < free:
                msg = "the index names blocks that overlap"
                raise CorruptFileError(msg, _HINT, self._block_name(handle))
            free = block.end
            self._separators.append(separator)
            self._handles.append(block)

    def _handle(self, cursor: Cursor, limit: int) -> _Handle:
        """Read the location of a block that must end before ``limit``."""
        handle = _Handle(cursor.varint(), cursor.varint())
        if handle.end > limit:
            msg = f"a block of {handle.size} bytes at byte {handle.offset} does not fit in the file"
            raise cursor.corrupt(msg)
        return handle

    def _block(self, handle: _Handle) -> memoryview:
        """Return the verified and decompressed bytes of a block."""
        stop = handle.offset + handle.size
        # The checksum includes the byte with the compression type.
        stored = int.from_bytes(self._data[stop + 1 : handle.end], "little")
        if masked_crc32c(self._data[handle.offset : stop + 1]) != stored:
            msg = f"the block of {handle.size} bytes does not match its checksum"
            raise CorruptFileError(msg, _HINT, f"{self._file}, byte {handle.offset}")
        body = self._data[handle.offset : stop]
        kind = self._data[stop]
        if kind == _PLAIN:
            return body
        if kind == _SNAPPY:
            return memoryview(decompress(body, self._block_name(handle))).toreadonly()
        name = f" ({_NAMED_TYPES[kind]})" if kind in _NAMED_TYPES else ""
        msg = f"a block is compressed by method {kind}{name}; only snappy is read"
        raise UnsupportedError(msg, "save the checkpoint without compression", self._file)

    def _block_entries(self, index: int) -> dict[bytes, memoryview]:
        """Return the entries of a data block, whose keys must be between its separators."""
        handle = self._handles[index]
        entries = dict(self._entries(self._block(handle), handle))
        if not entries:
            return entries
        first, last = next(iter(entries)), next(reversed(entries))
        if last > self._separators[index] or (index and first <= self._separators[index - 1]):
            msg = "a block holds keys that belong elsewhere"
            raise CorruptFileError(msg, _HINT, self._block_name(handle))
        return entries

    def _entries(self, block: memoryview, handle: _Handle) -> Iterator[tuple[bytes, memoryview]]:
        """Yield the keys and values of a block, ignoring its restart points."""
        tail = Cursor(block, max(len(block) - 4, 0), file=self._block_name(handle))
        end = tail.position - 4 * tail.fixed(4)
        if end < 0:
            msg = "the restart points of a block do not fit in it"
            raise tail.corrupt(msg)
        cursor = Cursor(block, 0, end, file=self._block_name(handle))
        room = max(_KEY_BYTES, _KEY_GROWTH * len(block))
        key: bytes | None = None
        while cursor:
            shared, own, length = cursor.varint(), cursor.varint(), cursor.varint()
            previous = key or b""
            if shared > len(previous):
                msg = f"a key shares {shared} bytes with one of {len(previous)}"
                raise cursor.corrupt(msg)
            fresh = previous[:shared] + bytes(cursor.take(own))
            if key is not None and fresh <= key:
                msg = "the keys do not increase"
                raise cursor.corrupt(msg)
            key = fresh
            room -= len(key)
            if room < 0:
                msg = "the keys of a block are longer than any checkpoint's"
                raise cursor.corrupt(msg)
            yield key, cursor.take(length)

    def _block_name(self, handle: _Handle) -> str:
        return f"{self._file}, block at byte {handle.offset}"


_HINT: Final = "the file is damaged; copy or save it again"


# The densest element of the format is a copy with a 2-byte offset: 64 bytes from 3.
_MOST_OUT: Final = 64
_FROM: Final = 3
# A block contains at most one message, and protobuf is limited to 2 GiB.
_LARGEST: Final = 1 << 31
# The length of longer literals is in 1 to 4 bytes after the tag.
_INLINE_LITERAL: Final = 60
_LITERAL, _COPY_1 = 0, 1


def decompress(block: memoryview, where: str) -> bytearray:
    """Decompress a raw Snappy block.

    Args:
        block: the compressed bytes, which start with the decompressed length.
        where: name of the block, for messages.

    Raises:
        CorruptFileError: if the block is damaged.
    """
    cursor = Cursor(block, file=where)
    length = cursor.varint()
    if length > min((len(block) - cursor.position) * _MOST_OUT // _FROM, _LARGEST):
        msg = f"{len(block)} compressed bytes declare {length}, more than they can encode"
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
        else:  # The copy overlaps its own output: a repeated pattern.
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
