"""TFRecord files: records with checksums, plain or compressed by gzip or zlib.

Source: ``record_writer.cc`` and ``record_reader.cc`` of TensorFlow. A record is its length (8
bytes), the masked CRC-32C of that, its bytes, and the masked CRC-32C of those.
"""

from __future__ import annotations

import contextlib
import gzip
import struct
import tempfile
import threading
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from mobileprep.errors import CorruptFileError
from mobileprep.formats.checksums import masked_crc32c
from mobileprep.fsio import unreadable

_HEAD: Final = struct.Struct("<QI")
_TAIL: Final = struct.Struct("<I")
_LONGEST: Final = 1 << 30
_BLOCK: Final = 1 << 20
_MOST_UNPACKED: Final = 1 << 36
_GZIP: Final = b"\x1f\x8b\x08"
_ZLIB: Final = b"\x78"
_HINT: Final = "write the records again"


class TFRecordFile:
    """The records of a file, read by number, from any thread.

    Where each begins is noted at once; a compressed file is unpacked to a temporary file that has
    no name and goes with this object.

    Args:
        path: the file.

    Raises:
        CorruptFileError: it cannot be read, or is no TFRecord file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts = array("q")
        self._lock = threading.Lock()
        try:
            self._stream: IO[bytes] = path.open("rb")
            if not is_tf_record(self._stream):
                self._stream = _unpacked(self._stream, path)
            self._index()
        except OSError as error:
            raise unreadable(path, error) from error

    def __len__(self) -> int:
        return len(self._starts)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def record(self, index: int) -> bytes:
        """A record's bytes.

        Raises:
            CorruptFileError: its checksum is another.
        """
        start = self._starts[index]
        with self._lock:
            self._stream.seek(start)
            length = _length(self._stream, self._where(start)) or 0
            data = self._stream.read(length)
            (checksum,) = _TAIL.unpack(self._stream.read(_TAIL.size).ljust(_TAIL.size, b"\0"))
        if len(data) < length or masked_crc32c(data) != checksum:
            raise CorruptFileError("is damaged: its checksum is another", _HINT, self._where(start))  # noqa: EM101
        return data

    def _index(self) -> None:
        self._stream.seek(0, 2)
        size = self._stream.tell()
        at = 0
        while at < size:
            self._stream.seek(at)
            length = _length(self._stream, self._where(at))
            end = at + _HEAD.size + length + _TAIL.size
            if end > size:
                message = f"ends within a record of {length} bytes"
                raise CorruptFileError(message, "copy the file again", self._where(at))
            self._starts.append(at)
            at = end

    def _where(self, at: int) -> str:
        return f"{self._path}, byte {at}"


def is_tf_record(stream: IO[bytes]) -> bool:
    """Whether a file begins with a record, told by the checksum of its length; empty ones do."""
    stream.seek(0)
    head = stream.read(_HEAD.size)
    if not head:
        return True
    if len(head) < _HEAD.size:
        return False
    return bool(masked_crc32c(head[:8]) == _HEAD.unpack(head)[1])


def _length(stream: IO[bytes], where: str) -> int:
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise CorruptFileError("ends within a record's length", "copy the file again", where)  # noqa: EM101
    length, checksum = _HEAD.unpack(head)
    if masked_crc32c(head[:8]) != checksum:
        raise CorruptFileError("is no TFRecord: the checksum of a length is another", _HINT, where)  # noqa: EM101
    if length > _LONGEST:
        message = f"has a record of {length} bytes; at most {_LONGEST} are read"
        raise CorruptFileError(message, _HINT, where)
    return int(length)


def _unpacked(packed: IO[bytes], path: Path) -> IO[bytes]:
    """The bytes of a compressed file in a temporary one.

    Raises:
        CorruptFileError: it is not compressed, is damaged, or unpacks to too much.
    """
    spool = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the file that it is for
    size = 0
    with packed, contextlib.ExitStack() as undo:
        undo.callback(spool.close)
        try:
            for block in _blocks(packed, path):
                size += len(block)
                if size > _MOST_UNPACKED:
                    message = f"unpacks to more than {_MOST_UNPACKED} bytes"
                    raise CorruptFileError(message, "write it in parts", str(path))
                spool.write(block)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            msg = f"is damaged: {error}"
            raise CorruptFileError(msg, "copy the file again", str(path)) from error
        undo.pop_all()
    return spool


def _blocks(packed: IO[bytes], path: Path) -> Iterator[bytes]:
    packed.seek(0)
    magic = packed.read(len(_GZIP))
    packed.seek(0)
    if magic == _GZIP:
        with gzip.GzipFile(fileobj=packed) as stream:
            while block := stream.read(_BLOCK):
                yield block
    elif magic[:1] == _ZLIB and len(magic) > 1 and int.from_bytes(magic[:2], "big") % 31 == 0:
        yield from _inflated(packed)
    else:
        raise CorruptFileError("is no TFRecord file", "name a file of tf.train.Example", str(path))  # noqa: EM101


def _inflated(packed: IO[bytes]) -> Iterator[bytes]:
    inflate = zlib.decompressobj()
    while not inflate.eof:
        data = inflate.unconsumed_tail or packed.read(_BLOCK)
        if not data:
            message = "it ends before its compressed data does"
            raise EOFError(message)
        yield inflate.decompress(data, _BLOCK)
