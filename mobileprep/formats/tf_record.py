"""TFRecord files: records with checksums, optionally compressed with gzip or zlib.

A record is its length (8 bytes), the masked CRC-32C of the length, its bytes, and their masked
CRC-32C. Source: ``record_writer.cc`` and ``record_reader.cc`` of TensorFlow.
"""

from __future__ import annotations

import gzip
import io
import mmap
import struct
import tempfile
import zlib
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mobileprep.core.files import map_file, unreadable
from mobileprep.errors import CorruptFileError
from mobileprep.formats.checksums import masked_crc32c
from mobileprep.formats.dtypes import DType
from mobileprep.formats.wire import BYTES, FIXED32, VARINT, Cursor, skip_field

_HEAD: Final = struct.Struct("<QI")
_LENGTH: Final = 8
_TAIL: Final = struct.Struct("<I")
_BLOCK: Final = 1 << 20
_MOST_UNPACKED: Final = 1 << 36
_GZIP: Final = b"\x1f\x8b\x08"
_ZLIB: Final = b"\x78"
_HINT: Final = "write the records again"


class TFRecordFile:
    """The records of a mapped file, by index, from any thread.

    The file is indexed when it is opened. A compressed file is decompressed to an unnamed temporary
    file that exists as long as this object.

    Raises:
        CorruptFileError: if the file cannot be read, or is not a TFRecord file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = map_file(path)
        if not is_tf_record(self._data):
            self._data = _unpacked(self._data, path)
        self._starts = array("q", self._offsets())

    def __len__(self) -> int:
        return len(self._starts)

    def record(self, index: int) -> bytes:
        """Return the bytes of a record, after verifying their checksum."""
        start = self._starts[index]
        begin = start + _HEAD.size
        end = begin + self._length(start)
        data = bytes(self._data[begin:end])
        if masked_crc32c(data) != _TAIL.unpack_from(self._data, end)[0]:
            raise CorruptFileError("is damaged: its checksum is another", _HINT, self._where(start))  # noqa: EM101
        return data

    def _offsets(self) -> Iterator[int]:
        """Yield the offset of each record, after checking that it is inside the file."""
        size, at = len(self._data), 0
        while at < size:
            length = self._length(at)
            end = at + _HEAD.size + length + _TAIL.size
            if end > size:
                message = f"ends within a record of {length} bytes"
                raise CorruptFileError(message, "copy the file again", self._where(at))
            yield at
            at = end

    def _length(self, at: int) -> int:
        if at + _HEAD.size > len(self._data):
            message = "ends within a record's length"
            raise CorruptFileError(message, "copy the file again", self._where(at))
        length, checksum = _HEAD.unpack_from(self._data, at)
        if masked_crc32c(self._data[at : at + _LENGTH]) != checksum:
            message = "is not a TFRecord file: the checksum of a length does not match"
            raise CorruptFileError(message, _HINT, self._where(at))
        return int(length)

    def _where(self, at: int) -> str:
        return f"{self._path}, byte {at}"


def framed(data: bytes) -> bytes:
    """Return data as a record, with its length and checksums."""
    length = len(data).to_bytes(_LENGTH, "little")
    head = _HEAD.pack(len(data), masked_crc32c(length))
    return head + data + _TAIL.pack(masked_crc32c(data))


def is_tf_record(data: bytes | memoryview) -> bool:
    """Return whether data starts with a record, by the checksum of its length, or is empty."""
    if len(data) < _HEAD.size:
        return not len(data)
    return bool(masked_crc32c(data[:_LENGTH]) == _HEAD.unpack_from(data)[1])


def _unpacked(packed: memoryview, path: Path) -> memoryview:
    """Decompress a file to a mapped temporary file."""
    size = 0
    with tempfile.TemporaryFile() as spool:
        try:
            for block in _blocks(packed, path):
                size += len(block)
                if size > _MOST_UNPACKED:
                    message = f"unpacks to more than {_MOST_UNPACKED} bytes"
                    raise CorruptFileError(message, "write it in parts", str(path))
                spool.write(block)
            spool.flush()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            msg = f"is damaged: {error}"
            raise CorruptFileError(msg, "copy the file again", str(path)) from error
        except OSError as error:
            raise unreadable(path, error) from error
        if not size:
            return memoryview(b"")
        return memoryview(mmap.mmap(spool.fileno(), 0, access=mmap.ACCESS_READ))


def _blocks(packed: memoryview, path: Path) -> Iterator[bytes]:
    """Yield the decompressed content of a file in blocks of 1 MiB."""
    magic = bytes(packed[: len(_GZIP)])
    if magic == _GZIP:
        with gzip.GzipFile(fileobj=_Reader(packed)) as stream:
            while block := stream.read(_BLOCK):
                yield block
    elif magic[:1] == _ZLIB and int.from_bytes(magic[:2], "big") % 31 == 0:
        yield from _inflated(packed)
    else:
        msg = "is not a TFRecord file"
        raise CorruptFileError(msg, "name a file of tf.train.Example", str(path))


def _inflated(packed: memoryview) -> Iterator[bytes]:
    inflate = zlib.decompressobj()
    at = 0
    while not inflate.eof:
        data = inflate.unconsumed_tail
        if not data:
            data, at = bytes(packed[at : at + _BLOCK]), at + _BLOCK
        if not data:
            message = "it ends before its compressed data does"
            raise EOFError(message)
        yield inflate.decompress(data, _BLOCK)


class _Reader(io.RawIOBase):
    """A file object for a view, without copying it in advance."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - typeshed's Buffer is newer than Python 3.11
        view = memoryview(buffer)
        part = self._data[self._at : self._at + len(view)]
        view[: len(part)] = part
        self._at += len(part)
        return len(part)


_FILE: Final = "serialized example"
_FIRST_BYTES: Final = 1 << 3 | BYTES
_SECOND_BYTES: Final = 2 << 3 | BYTES
_KINDS: Final = {
    1 << 3 | BYTES: DType.STRING,
    2 << 3 | BYTES: DType.FLOAT,
    3 << 3 | BYTES: DType.INT64,
}
_SINGLE: Final = {DType.FLOAT: 1 << 3 | FIXED32, DType.INT64: 1 << 3 | VARINT}
_FLOAT: Final = np.dtype("<f4")
_LONGEST: Final = 10


class Feature(Struct, frozen=True):
    """The values of a feature.

    Args:
        dtype: STRING, FLOAT, or INT64.
        values: a list of bytes, or a 1-D array of that dtype.
    """

    dtype: DType
    values: list[bytes] | NDArray[Any]


def read_example(data: bytes) -> Mapping[bytes, memoryview]:
    """Return the serialized features of an example by name; the last of equal names applies."""
    by_name: dict[bytes, memoryview] = {}
    example = Cursor(data, file=_FILE)
    while example:
        features = _submessage(example)
        while features is not None and features:
            entry = _submessage(features)
            if entry is not None:
                name, feature = _entry(entry)
                by_name[name] = feature
    return by_name


def read_feature(data: memoryview) -> Feature | None:
    """Return the values of a feature, or None if it is empty, without a dtype."""
    cursor = Cursor(data, file=_FILE)
    if not cursor:
        return None
    kind = _KINDS.get(cursor.varint())
    if kind is None:
        message = "a feature is not a list of strings, float32, or int64"
        raise cursor.corrupt(message)
    values = _sub(cursor)
    return Feature(kind, _texts(values) if kind is DType.STRING else _numbers(values, kind))


def _submessage(cursor: Cursor) -> Cursor | None:
    """Return the next field if it is a message with number 1; skip other fields."""
    tag = cursor.varint()
    if tag == _FIRST_BYTES:
        return _sub(cursor)
    skip_field(cursor, tag)
    return None


def _sub(cursor: Cursor) -> Cursor:
    """Return a cursor for the next length-delimited body."""
    length = cursor.varint()
    start = cursor.position
    cursor.skip(length)
    return Cursor(cursor.data, start, cursor.position, file=cursor.file, base=cursor.base)


def _entry(cursor: Cursor) -> tuple[bytes, memoryview]:
    """Return the name and the serialized values of a feature."""
    name, feature = b"", memoryview(b"")
    while cursor:
        tag = cursor.varint()
        if tag == _FIRST_BYTES:
            name = bytes(cursor.take(cursor.varint()))
        elif tag == _SECOND_BYTES:
            feature = cursor.take(cursor.varint())
        else:
            skip_field(cursor, tag)
    return name, feature


def _texts(cursor: Cursor) -> list[bytes]:
    texts = []
    while cursor:
        if cursor.varint() != _FIRST_BYTES:
            raise _stranger(cursor)
        texts.append(bytes(cursor.take(cursor.varint())))
    return texts


def _numbers(cursor: Cursor, kind: DType) -> NDArray[Any]:
    """Read unpacked or packed numbers."""
    parts: list[memoryview] = []
    while cursor:
        tag = cursor.varint()
        if tag == _FIRST_BYTES:
            parts.append(cursor.take(cursor.varint()))
        elif tag == _SINGLE[kind]:
            start = cursor.position
            skip_field(cursor, tag)
            parts.append(memoryview(cursor.data)[start : cursor.position])
        else:
            raise _stranger(cursor)
    packed = parts[0] if len(parts) == 1 else b"".join(parts)
    return _floats(packed, cursor) if kind is DType.FLOAT else _varints(packed, cursor)


def _floats(packed: bytes | memoryview, cursor: Cursor) -> NDArray[Any]:
    if len(packed) % _FLOAT.itemsize:
        message = f"{len(packed)} bytes are not a multiple of the size of float32"
        raise cursor.corrupt(message)
    return np.frombuffer(packed, _FLOAT)


def _varints(packed: bytes | memoryview, cursor: Cursor) -> NDArray[Any]:
    """Decode signed 64-bit varints (base 128, low group first) with numpy."""
    raw = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    if len(ends) == len(raw):
        return raw.astype(np.int64)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if not len(ends) or ends[-1] + 1 != len(raw) or lengths.max() > _LONGEST:
        message = "a variable-length integer does not end"
        raise cursor.corrupt(message)
    place = np.arange(len(raw)) - np.repeat(starts, lengths)
    groups = (raw & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64)
    return np.bitwise_or.reduceat(groups, starts).view(np.int64)


def _stranger(cursor: Cursor) -> Exception:
    return cursor.corrupt("a list of a feature has a field that no example has")
