"""Open checkpoints of both formats."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.core.files import view_file
from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.formats.checkpoint_files import find_checkpoint, index_path, shard_paths
from mobileprep.formats.checkpoint_reader import (
    Array,
    Box,
    Checkpoint,
    Extents,
    StoredTensor,
    TensorEntry,
    check_versions,
    element_type,
    entry_of,
    extents_of,
    is_whole,
    parse,
    read_only,
    shape_of_box,
    slice_key,
)
from mobileprep.formats.checksums import crc32c, mask, masked_crc32c
from mobileprep.formats.dtypes import DType, listed_values, packed_values
from mobileprep.formats.protos import checkpoint_pb2 as pb
from mobileprep.formats.protos import graph_pb2 as graph
from mobileprep.formats.sstable import SortedTable
from mobileprep.formats.wire import Cursor, Layout, Payload, payload_at, split_payloads

__all__ = ["Checkpoint", "TensorEntry", "open_checkpoint"]


def open_checkpoint(path: Path) -> Checkpoint:
    """Open the checkpoint at a path; tensors are read when they are needed.

    Args:
        path: the prefix, any file of the checkpoint, a ``checkpoint`` state file (for its newest
            checkpoint, even if the directory was moved), or a directory.
    """
    files = find_checkpoint(path)
    return CheckpointV1(files.prefix, files.tables) if files.is_v1 else TensorBundle(files.prefix)


_META_KEY: Final = b""
_HINT: Final = "the file is damaged; copy or save it again"
_LAYOUT: Final = Layout({2: Layout({3: Layout(is_tensor=True)})})


class CheckpointV1(Checkpoint):
    """A V1 checkpoint with one or more tables.

    Tensors of float32 and float64 are views of the file. Other dtypes have a longer encoding and
    are decoded one tensor at a time.

    Args:
        prefix: common path prefix of its files.
        files: its tables.

    Raises:
        CorruptFileError: if a table is damaged, or tables contradict each other.
        UnsupportedError: if a table has a newer format.
    """

    def __init__(self, prefix: Path, files: tuple[Path, ...]) -> None:
        self._tables = {path: SortedTable(view_file(path), str(path)) for path in files}
        self._places: dict[tuple[str, Extents], Path] = {}
        tensors: dict[str, StoredTensor] = {}
        for path, table in self._tables.items():
            self._read_meta(path, table, tensors)
        super().__init__(prefix, files, tensors)

    def _read_meta(self, path: Path, table: SortedTable, tensors: dict[str, StoredTensor]) -> None:
        value = table.get(_META_KEY)
        if value is None:
            message = "does not start with a list of tensors: it is not a V1 checkpoint"
            raise CorruptFileError(message, "name the checkpoint by its prefix", str(path))
        meta = parse(pb.SavedTensorSlices, value, str(path)).meta
        check_versions(meta.versions, str(path))
        for tensor in meta.tensor:
            where = f"{path}, tensor {tensor.name[:80]!r}"
            entry = entry_of(tensor.type, tensor.shape, where)
            slices = tuple(extents_of(s) for s in tensor.slice)
            previous = tensors.get(tensor.name)
            if previous is not None and previous.entry != entry:
                message = "has another type or shape than in another file of the checkpoint"
                raise CorruptFileError(message, _HINT, where)
            self._places.update({(tensor.name, extents): path for extents in slices})
            slices = (previous.slices if previous else ()) + slices
            tensors[tensor.name] = StoredTensor(entry, slices)

    def _read_slice(self, name: str, extents: Extents, box: Box) -> Array:
        path = self._places[name, extents]
        where = f"{path}, tensor {name!r}"
        value = self._tables[path].get(slice_key(name, extents))
        if value is None:
            message = "a listed slice is missing"
            raise CorruptFileError(message, _HINT, where)
        skeleton, payloads = split_payloads(value, _LAYOUT, where)
        saved = parse(pb.SavedTensorSlices, skeleton, where).data
        if saved.name != name:
            message = f"the slice belongs to {saved.name[:80]!r}"
            raise CorruptFileError(message, _HINT, where)
        entry = TensorEntry(self.entry(name).dtype, shape_of_box(box))
        values = _values(saved.data, payloads, entry.dtype, where)
        if len(values) != entry.size:
            message = f"has {len(values)} elements instead of {entry.size}"
            raise CorruptFileError(message, _HINT, where)
        return read_only(values.reshape(entry.shape))

    def _release(self) -> None:
        self._tables.clear()


def _values(proto: graph.TensorProto, payloads: list[Payload], dtype: DType, where: str) -> Array:
    """Return the elements of a slice, 1-D; empty if the field of their type is empty."""
    if proto.payload:
        values = packed_values(payload_at(payloads, proto.payload, where), where)
        return values if values.dtype == dtype.numpy else values[:0]
    listed = listed_values(proto, dtype)
    return listed if listed is not None else np.empty(0, dtype=element_type(dtype))


_HEADER_KEY: Final = b""
_SLICE_KEYS: Final = b"\0"  # Prefix of slice keys, which no tensor name has.

_CHECKSUM: Final = 4
_UINT32: Final = 1 << 32


class _Record(Struct, frozen=True):
    """The location of elements: ``size`` bytes at ``offset`` of a data file, and their checksum."""

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
        CorruptFileError: if the index is damaged, or a data file is missing.
        UnsupportedError: if the checkpoint is big-endian, or has a newer format.
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
        """Return the tensors by name, without the records of slices."""
        named = {}
        for key, record in self._records.items():
            if key.startswith(_SLICE_KEYS):
                continue
            try:
                name = key.decode("utf-8")
            except UnicodeDecodeError as error:
                message = f"a tensor name is not a string: {key[:80]!r}"
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
        """Return the bytes of a record, and their location for messages."""
        if not 0 <= record.shard < self._shard_count:
            message = f"{name!r} refers to data file {record.shard} of {self._shard_count}"
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
        """Read strings: their lengths as varints, a checksum of the lengths, then their bytes."""
        data, where = self._data(name, record)
        count = record.entry.size
        if count > record.size:
            message = f"{count} strings are declared in {record.size} bytes"
            raise CorruptFileError(message, _HINT, where)
        cursor = Cursor(data, file=where.rpartition(",")[0], base=record.offset)
        lengths = [cursor.varint() for _ in range(count)]
        # Checksums use the lengths as fixed-width integers, not as varints.
        seed = crc32c(b"".join(n.to_bytes(4 if n < _UINT32 else 8, "little") for n in lengths))
        stored = cursor.take(_CHECKSUM)
        body = cursor.take(cursor.end - cursor.position)
        checksum = masked_crc32c(body, crc32c(stored, seed))
        if int.from_bytes(stored, "little") != mask(seed) or checksum != record.checksum:
            raise _damaged(name, where)
        if sum(lengths) != len(body):
            message = f"the strings of {name!r} do not match the number of bytes"
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
    """Read the number of data files."""
    value = table.get(_HEADER_KEY)
    if value is None:
        message = "has no header: it is not a checkpoint index"
        raise CorruptFileError(message, "name the checkpoint by its prefix", file)
    header = parse(pb.BundleHeaderProto, value, file)
    check_versions(header.version, file)
    if header.endianness != pb.BundleHeaderProto.LITTLE:
        message = "is a big-endian checkpoint, which is not supported"
        raise UnsupportedError(message, "save it again on a little-endian machine", file)
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
