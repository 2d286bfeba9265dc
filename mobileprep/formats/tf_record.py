"""TFRecord files: records with checksums, plain or compressed by gzip or zlib.

Source: ``record_writer.cc`` and ``record_reader.cc`` of TensorFlow. A record is its length (8
bytes), the masked CRC-32C of that, its bytes, and the masked CRC-32C of those.
"""

from __future__ import annotations

import gzip
import io
import mmap
import struct
import tempfile
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mobileprep.core.files import unreadable
from mobileprep.errors import CorruptFileError
from mobileprep.formats.checksums import masked_crc32c
from mobileprep.formats.mapped_file import map_file

_HEAD: Final = struct.Struct("<QI")
_LENGTH: Final = 8
_TAIL: Final = struct.Struct("<I")
_BLOCK: Final = 1 << 20
_MOST_UNPACKED: Final = 1 << 36
_GZIP: Final = b"\x1f\x8b\x08"
_ZLIB: Final = b"\x78"
_HINT: Final = "write the records again"


class TFRecordFile:
    """The records of a file, mapped into memory and read by number, from any thread.

    Where each begins is noted at once; a compressed file is unpacked to a temporary file that has
    no name and goes with this object.

    Args:
        path: the file.

    Raises:
        CorruptFileError: it cannot be read, or is no TFRecord file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = map_file(path)
        if not is_tf_record(self._data):
            self._data = _unpacked(self._data, path)
        self._starts = array("q", self._found())

    def __len__(self) -> int:
        return len(self._starts)

    def record(self, index: int) -> bytes:
        """A record's bytes.

        Raises:
            CorruptFileError: its checksum is another.
        """
        start = self._starts[index]
        begin = start + _HEAD.size
        end = begin + self._length(start)
        data = bytes(self._data[begin:end])
        if masked_crc32c(data) != _TAIL.unpack_from(self._data, end)[0]:
            raise CorruptFileError("is damaged: its checksum is another", _HINT, self._where(start))  # noqa: EM101
        return data

    def _found(self) -> Iterator[int]:
        """Where each record begins; all of them lie within the file."""
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
            message = "is no TFRecord: the checksum of a length is another"
            raise CorruptFileError(message, _HINT, self._where(at))
        return int(length)

    def _where(self, at: int) -> str:
        return f"{self._path}, byte {at}"


def is_tf_record(data: bytes | memoryview) -> bool:
    """Whether a file begins with a record, told by the checksum of its length; empty ones do."""
    if len(data) < _HEAD.size:
        return not len(data)
    return bool(masked_crc32c(data[:_LENGTH]) == _HEAD.unpack_from(data)[1])


def _unpacked(packed: memoryview, path: Path) -> memoryview:
    """The bytes of a compressed file, in a temporary one that is mapped.

    Raises:
        CorruptFileError: it is not compressed, is damaged, or unpacks to too much.
    """
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
    """What a file unpacks to, a megabyte at a time."""
    magic = bytes(packed[: len(_GZIP)])
    if magic == _GZIP:
        with gzip.GzipFile(fileobj=_Reader(packed)) as stream:
            while block := stream.read(_BLOCK):
                yield block
    elif magic[:1] == _ZLIB and int.from_bytes(magic[:2], "big") % 31 == 0:
        yield from _inflated(packed)
    else:
        raise CorruptFileError("is no TFRecord file", "name a file of tf.train.Example", str(path))  # noqa: EM101


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
    """A view as a file, nothing copied ahead."""

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
