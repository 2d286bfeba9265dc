"""V2 checkpoints: a table of entries (``.index``) over data files that hold the elements.

Source: TensorFlow's ``tensor_bundle``. A partitioned tensor has one entry that lists its
slices, and one for each slice under a key made by ``ordered_code``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.formats.checkpoint_files import index_path, shard_paths
from mobileprep.formats.checkpoint_reader import Checkpoint
from mobileprep.formats.checkpoint_records import (
    StoredTensor,
    TensorEntry,
    check_versions,
    entry_of,
    parse,
)
from mobileprep.formats.checksums import crc32c, mask, masked_crc32c
from mobileprep.formats.cursor import Cursor
from mobileprep.formats.dtypes import DType
from mobileprep.formats.mapped_file import view_file
from mobileprep.formats.ordered_code import slice_key
from mobileprep.formats.protos import checkpoint_pb2 as pb
from mobileprep.formats.slices import (
    Array,
    Box,
    Extents,
    extents_of,
    is_whole,
    read_only,
    shape_of_box,
)
from mobileprep.formats.sstable import SortedTable
from mobileprep.frozen import dataclass

_HEADER_KEY: Final = b""
_SLICE_KEYS: Final = b"\0"  # what the keys of slices begin with, and no tensor's name does
_HINT: Final = "the file is damaged; copy or save it again"
_CHECKSUM: Final = 4
_UINT32: Final = 1 << 32


@dataclass(frozen=True)
class _Record:
    """Where elements lie: ``size`` bytes at ``offset`` of a data file, and their checksum."""

    entry: TensorEntry
    shard: int
    offset: int
    size: int
    checksum: int
    slices: tuple[Extents, ...]


class TensorBundle(Checkpoint):
    """A V2 checkpoint.

    Args:
        prefix: the path without ``.index``.

    Raises:
        CorruptFileError: the index is damaged, or a data file is missing.
        UnsupportedError: it is big-endian, or of a newer format.
    """

    def __init__(self, prefix: Path) -> None:
        index = index_path(prefix)
        table = SortedTable(view_file(index), str(index))
        self._index = str(index)
        self._shard_count = _read_header(table, self._index)
        self._records = {
            key: _record(key, value, self._index) for key, value in table if key != _HEADER_KEY
        }
        self._shards: dict[int, memoryview] = {}
        self._paths = shard_paths(prefix, self._shard_count)
        super().__init__(prefix, (index, *self._paths), self._named())

    def _named(self) -> dict[str, StoredTensor]:
        """The tensors by name, records of slices left out."""
        named = {}
        for key, record in self._records.items():
            if key.startswith(_SLICE_KEYS):
                continue
            try:
                name = key.decode("utf-8")
            except UnicodeDecodeError as error:
                message = f"the name of a tensor is no text: {key[:80]!r}"
                raise CorruptFileError(message, _HINT, self._index) from error
            all_of_it = (((0, -1),) * len(record.entry.shape),)
            named[name] = StoredTensor(record.entry, record.slices or all_of_it)
        return named

    def _read_slice(self, name: str, extents: Extents, box: Box) -> Array:
        key = name.encode() if is_whole(extents) else slice_key(name, extents)
        record = self._records.get(key)
        expected = TensorEntry(self.entry(name).dtype, shape_of_box(box))
        if record is None or record.entry != expected:
            message = f"a slice of {name!r} is missing, or not as the whole tensor has it"
            raise CorruptFileError(message, _HINT, self._index)
        if record.entry.dtype is DType.STRING:
            return self._strings(name, record)
        if record.size != expected.nbytes:
            message = (
                f"{name!r} is recorded as {record.size} bytes where type {expected.dtype.short} "
                f"and shape {list(expected.shape)} take {expected.nbytes}"
            )
            raise CorruptFileError(message, _HINT, self._index)
        data, where = self._data(name, record)
        if mask(crc32c(data)) != record.checksum:
            raise _damaged(name, where)
        elements: Array = np.ndarray(expected.shape, dtype=expected.dtype.numpy, buffer=data)
        return elements

    def _data(self, name: str, record: _Record) -> tuple[memoryview, str]:
        """The bytes of a record, and their place for messages."""
        if not 0 <= record.shard < self._shard_count:
            message = f"{name!r} lies in data file {record.shard} of {self._shard_count}"
            raise CorruptFileError(message, _HINT, self._index)
        path = self._paths[record.shard]
        if record.shard not in self._shards:
            self._shards[record.shard] = view_file(path)
        data = self._shards[record.shard]
        stop = record.offset + record.size
        where = f"{path}, byte {record.offset}"
        if record.offset < 0 or record.size < 0 or stop > len(data):
            message = (
                f"{name!r} takes {record.size} bytes, and the file ends at byte {len(data)}: "
                "it is truncated, or of another checkpoint"
            )
            raise CorruptFileError(message, "copy or save the checkpoint again", where)
        return data[record.offset : stop], where

    def _strings(self, name: str, record: _Record) -> Array:
        """Strings: their lengths as varints, a checksum of the lengths, then their bytes."""
        data, where = self._data(name, record)
        count = record.entry.size
        if count > record.size:
            message = f"{count} strings are declared in {record.size} bytes"
            raise CorruptFileError(message, _HINT, where)
        cursor = Cursor(data, file=where.rpartition(",")[0], base=record.offset)
        lengths = [cursor.varint() for _ in range(count)]
        # Checksums take the lengths as fixed-width numbers, not as they are stored.
        seed = crc32c(b"".join(n.to_bytes(4 if n < _UINT32 else 8, "little") for n in lengths))
        stored = cursor.take(_CHECKSUM)
        body = cursor.take(cursor.end - cursor.position)
        checksum = masked_crc32c(body, crc32c(stored, seed))
        if int.from_bytes(stored, "little") != mask(seed) or checksum != record.checksum:
            raise _damaged(name, where)
        if sum(lengths) != len(body):
            message = f"the strings of {name!r} do not take the bytes that are there"
            raise CorruptFileError(message, _HINT, where)
        texts = Cursor(body)
        out = np.empty(count, dtype=object)
        out[:] = [bytes(texts.take(length)) for length in lengths]
        return read_only(out.reshape(record.entry.shape))

    def _release(self) -> None:
        self._shards.clear()


def _damaged(name: str, where: str) -> CorruptFileError:
    return CorruptFileError(f"{name!r} does not match its checksum", _HINT, where)


def _read_header(table: SortedTable, file: str) -> int:
    """The number of data files.

    Raises:
        CorruptFileError: there is no header, or it names no data file.
        UnsupportedError: it is big-endian, or of a newer format.
    """
    value = table.get(_HEADER_KEY)
    if value is None:
        message = "has no header: it is no index of a checkpoint"
        raise CorruptFileError(message, "name the checkpoint by its prefix", file)
    header = parse(pb.BundleHeaderProto, value, file)
    check_versions(header.version, file)
    if header.endianness != pb.BundleHeaderProto.LITTLE:
        message = "is a big-endian checkpoint, which is not supported"
        raise UnsupportedError(message, "save it anew on a little-endian machine", file)
    if header.num_shards < 1:
        message = f"names {header.num_shards} data files"
        raise CorruptFileError(message, _HINT, file)
    return header.num_shards


def _record(key: bytes, value: memoryview, file: str) -> _Record:
    where = f"{file}, entry {key[:80].decode('utf-8', 'backslashreplace')!r}"
    proto = parse(pb.BundleEntryProto, value, where)
    return _Record(
        entry_of(proto.dtype, proto.shape, where),
        proto.shard_id,
        proto.offset,
        proto.size,
        proto.crc32c,
        tuple(extents_of(s) for s in proto.slices),
    )
