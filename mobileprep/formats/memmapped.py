"""Packages of regions that a runtime maps into memory: TensorFlow's ``memmapped_file_system``.

Regions are consecutive; tensors start at multiples of 64 bytes. A directory of names, offsets, and
lengths follows, and the last eight bytes are its little-endian offset. The region
``memmapped_package://.`` is the GraphDef, in which ImmutableConst nodes name the other regions.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import ClassVar, Final

from google.protobuf.message import DecodeError
from msgspec import Struct

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.formats.protos import memmapped_pb2 as pb
from mobileprep.formats.wire import BYTES, Buffer, Cursor

PREFIX: Final = "memmapped_package://"
"""Prefix of the names of all regions."""
GRAPH_REGION: Final = f"{PREFIX}."
"""Name of the region with the GraphDef."""
ALIGNMENT: Final = 64
"""Alignment of tensors in bytes: ``Allocator::kAllocatorAlignment``."""

_OFFSET: Final = struct.Struct("<Q")
_NAME: Final = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_.]*\Z")
_TAIL: Final = 4096
_ELEMENT: Final = 1 << 3 | BYTES
# Longer elements are invalid; names of nodes are far shorter.
_LONGEST_ELEMENT: Final = 1 << 16


def ends_as_package(data: Buffer) -> bool:
    """Return whether the end of a file names regions, like the directory of a package does."""
    return PREFIX.encode() in bytes(data[-_TAIL:])


class PackageRegion(Struct, frozen=True):
    """A region of a package: a view of its bytes, and their offset in the file."""

    view: memoryview
    offset: int


class Directory:
    """The directory of a package that is being written.

    Regions are added in file order. Source: ``MemmappedFileSystemWriter`` of TensorFlow 1.15.
    """

    def __init__(self) -> None:
        self._elements = pb.MemmappedFileSystemDirectory()
        self._end = 0

    def add(self, name: str, length: int, *, aligned: bool) -> bytes:
        """Add the next region, and return the padding before it.

        Args:
            name: name of the region.
            length: its length in bytes.
            aligned: whether it starts at a multiple of ``ALIGNMENT``.
        """
        filler = -self._end % ALIGNMENT if aligned else 0
        self._end += filler
        self._elements.element.add(offset=self._end, name=name, length=length)
        self._end += length
        return bytes(filler)

    def serialized(self) -> bytes:
        """Return the bytes after the last region: the directory, and its offset."""
        return self._elements.SerializeToString(deterministic=True) + _OFFSET.pack(self._end)


def read_package(data: Buffer, file: str) -> Mapping[str, PackageRegion]:
    """Return the regions of a package by name, in order.

    Like TensorFlow's loader, reject invalid packages; also reject lengths that overlap the next
    region.

    Source: ``MemmappedFileSystem::InitializeFromFile`` of TensorFlow 1.15.
    """
    view = memoryview(data)
    start, end = _directory_at(view, file), len(view) - _OFFSET.size
    elements = _elements(Cursor(view, start, end, file=file), start)
    stops = [*(element.offset for element in elements[1:]), start]
    regions: dict[str, PackageRegion] = {}
    for element, stop in zip(elements, stops, strict=True):
        if element.name in regions:
            message = f"the directory names the region {element.name!r} twice"
            raise _damaged(message, file)
        if element.length > stop - element.offset:
            message = (
                f"the region {element.name!r} of {element.length} bytes runs past byte {stop}, "
                "where the next one or the directory begins"
            )
            raise _damaged(message, file)
        length = element.length or stop - element.offset  # Old files contain no lengths.
        held = view[element.offset : element.offset + length]
        regions[element.name] = PackageRegion(held, element.offset)
    if GRAPH_REGION not in regions:
        message = f"the directory names no graph ({GRAPH_REGION!r})"
        raise _damaged(message, file)
    return regions


def _directory_at(view: memoryview, file: str) -> int:
    """Return the directory offset from the last eight bytes."""
    end = len(view) - _OFFSET.size
    if end < 0:
        message = "has no room for the offset of a directory"
        raise _damaged(message, file)
    (start,) = _OFFSET.unpack_from(view, end)
    if start >= end or view[start] != _ELEMENT:
        message = (
            f"the last eight bytes refer to byte {start} for the directory, which is out of bounds"
        )
        raise _damaged(message, file)
    return int(start)


def _elements(cursor: Cursor, directory: int) -> list[pb.MemmappedFileSystemDirectoryElement]:
    """Parse and check the elements of a directory one by one, so that an invalid one ends early."""
    elements: list[pb.MemmappedFileSystemDirectoryElement] = []
    before = -1
    while cursor:
        if cursor.varint() != _ELEMENT:
            message = "the directory contains something other than regions"
            raise cursor.corrupt(message)
        length = cursor.varint()
        if length > _LONGEST_ELEMENT:
            message = f"a region's record of {length} bytes is too long"
            raise cursor.corrupt(message)
        element = _element(cursor, length)
        if _NAME.match(element.name) is None:
            message = f"{element.name[:80]!r} is not a valid region name"
            raise cursor.corrupt(message)
        if not before < element.offset < directory:
            message = (
                f"the region {element.name!r} begins at byte {element.offset}, which is not "
                f"between the one before it and the directory at byte {directory}"
            )
            raise _damaged(message, cursor.file)
        before = element.offset
        elements.append(element)
    return elements


def _element(cursor: Cursor, length: int) -> pb.MemmappedFileSystemDirectoryElement:
    body = bytes(cursor.take(length))
    try:
        return pb.MemmappedFileSystemDirectoryElement.FromString(body)
    except DecodeError as error:
        message = "a region's record is none"
        raise cursor.corrupt(message) from error


def _damaged(message: str, file: str) -> CorruptFileError:
    hint = "the memory-mapped model is damaged or truncated: write it again from its graph"
    return CorruptFileError(message, hint, file)


# The first byte does not occur in text; the line ends reveal changes by a transfer.
MAGIC: Final = b"\x89MPENC\r\n"
VERSION: Final = 1
_LAYOUT: Final = struct.Struct("<8sIIQ16s32s")
TAG_BYTES: Final = 16
HEADER_BYTES: Final = _LAYOUT.size
OVERHEAD: Final = HEADER_BYTES + TAG_BYTES
"""Bytes that encryption adds to a model."""


class EncryptedHeader(Struct, frozen=True):
    """The header before the encrypted bytes.

    Args:
        length: length of the encrypted content in bytes.
        key_id: 16 bytes that identify the key.
        synthetic: 32 bytes derived from the key and the content; the key and nonce of the cipher
            are derived from them.
    """

    size: ClassVar[int] = HEADER_BYTES

    length: int
    key_id: bytes
    synthetic: bytes

    def packed(self) -> bytes:
        """Return the header as bytes."""
        return _LAYOUT.pack(MAGIC, VERSION, HEADER_BYTES, self.length, self.key_id, self.synthetic)


def is_encrypted(data: Buffer) -> bool:
    """Return whether data starts like an encrypted model."""
    return bytes(data[: len(MAGIC)]) == MAGIC


def read_header(data: Buffer, file: str) -> EncryptedHeader:
    """Parse the header of an encrypted model.

    Raises:
        CorruptFileError: if the data is not an encrypted model, or is truncated.
        UnsupportedError: if the format version is unknown.
    """
    if not is_encrypted(data):
        message = "is not an encrypted model"
        raise CorruptFileError(message, "give a file that a build encrypted", file)
    if len(data) < OVERHEAD:
        message = f"ends after {len(data)} bytes, within the header of an encrypted model"
        raise CorruptFileError(message, "copy it again", file)
    _, version, size, length, key_id, synthetic = _LAYOUT.unpack(bytes(data[:HEADER_BYTES]))
    if (version, size) != (VERSION, HEADER_BYTES):
        message = f"is encrypted in version {version} of the format, and {VERSION} is known"
        raise UnsupportedError(message, "use the mobileprep that made it, or a newer one", file)
    if len(data) != length + OVERHEAD:
        message = f"has {len(data):,} bytes, but its header declares {length + OVERHEAD:,}"
        raise CorruptFileError(message, "copy it again", file)
    return EncryptedHeader(length, key_id, synthetic)
