"""Write valid and invalid tables and checkpoints without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import cramjam
import google_crc32c
import numpy as np

from mobileprep.formats.dtypes import VALUE_FIELD, DType, dtype_from_numpy
from mobileprep.formats.protos import checkpoint_pb2 as pb
from mobileprep.formats.wire import encode_varint

MAGIC = bytes.fromhex("57fb808b247547db")
Entries = Iterable[tuple[bytes, bytes]]


def masked(data: bytes, seed: int = 0) -> bytes:
    """Return the 4 bytes that TensorFlow stores for a checksum."""
    crc = google_crc32c.extend(seed, data)
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32).to_bytes(4, "little")


def block(entries: Entries, restart_every: int = 16) -> bytes:
    """Encode a block, whose keys share prefixes between restart points."""
    body, restarts, previous = bytearray(), [], b""
    for count, (key, value) in enumerate(entries):
        shared = 0
        if count % restart_every == 0:
            restarts.append(len(body))
        else:
            while shared < min(len(key), len(previous)) and key[shared] == previous[shared]:
                shared += 1
        for number in (shared, len(key) - shared, len(value)):
            body += encode_varint(number)
        body += key[shared:] + value
        previous = key
    for restart in restarts or [0]:
        body += restart.to_bytes(4, "little")
    return bytes(body) + len(restarts or [0]).to_bytes(4, "little")


def sealed(body: bytes, method: int = 0) -> bytes:
    """Add the trailer of a block. Method 1 compresses the block, others only set the number."""
    stored = bytes(cramjam.snappy.compress_raw(body)) if method == 1 else body
    return stored + bytes([method]) + masked(stored + bytes([method]))


def handle(offset: int, size: int) -> bytes:
    """Encode the position of a block for indexes and footers."""
    return encode_varint(offset) + encode_varint(size)


def footer(meta: bytes, index: bytes) -> bytes:
    """A footer with those handles."""
    return (meta + index).ljust(40, b"\0") + MAGIC


def assemble(blocks: list[tuple[bytes, bytes]]) -> bytes:
    """Return a table of sealed blocks, each with its separator in the index."""
    out, index = bytearray(), []
    for separator, stored in blocks:
        index.append((separator, handle(len(out), len(stored) - 5)))
        out += stored
    meta = handle(len(out), len(block([])))
    out += sealed(block([]))
    index_block = block(index, 1)
    position = handle(len(out), len(index_block))
    return bytes(out) + sealed(index_block) + footer(meta, position)


def table(
    entries: Entries, *, per_block: int = 8, restart_every: int = 16, method: int = 0
) -> bytes:
    """Return a table of entries, which must be sorted by key."""
    listed = list(entries)
    runs = [listed[i : i + per_block] for i in range(0, len(listed), per_block)]
    return assemble([(run[-1][0], sealed(block(run, restart_every), method)) for run in runs])


def shape_into(proto: object, shape: Iterable[int]) -> None:
    """Fill a TensorShapeProto."""
    proto.SetInParent()
    for size in shape:
        proto.dim.add().size = size


def slice_into(proto: pb.TensorSliceProto, extents: Iterable[tuple[int, int]]) -> None:
    """Fill a TensorSliceProto. A length of -1 selects everything and is not stored."""
    for start, length in extents:
        extent = proto.extent.add()
        if length >= 0:
            extent.start, extent.length = start, length


def string_bytes(strings: list[bytes]) -> tuple[bytes, bytes]:
    """Encode strings for a bundle and return their stored checksum."""
    lengths = b"".join(encode_varint(len(s)) for s in strings)
    seed = google_crc32c.value(b"".join(len(s).to_bytes(4, "little") for s in strings))
    check = masked(b"".join(len(s).to_bytes(4, "little") for s in strings))
    tail = check + b"".join(strings)
    return lengths + tail, masked(tail, seed)


Edit = Callable[[str, pb.BundleEntryProto], None]


def write_bundle(
    prefix: Path,
    tensors: dict[str, np.ndarray],
    *,
    shards: int = 1,
    header: dict[str, object] | None = None,
    edit: Edit = lambda _name, _entry: None,
    extra: Entries = (),
    method: int = 0,
) -> None:
    """Write a V2 checkpoint, whose tensors are distributed to the data files in turn.

    Args:
        prefix: path of the checkpoint.
        tensors: tensors by name. Bytes objects in an object array are strings.
        shards: number of data files.
        header: fields of the header to override.
        edit: called with each name and entry before the entry is written.
        extra: additional entries of the index.
        method: compression method of the index.
    """
    data = [bytearray() for _ in range(shards)]
    entries = []
    for number, (name, array) in enumerate(sorted(tensors.items())):
        shard = data[number % shards]
        entry = pb.BundleEntryProto(shard_id=number % shards, offset=len(shard))
        entry.dtype = dtype_from_numpy(array.dtype) or DType.INVALID
        shape_into(entry.shape, array.shape)
        if array.dtype == object:
            body, checksum = string_bytes(list(array.ravel()))
        else:
            body = array.tobytes()
            checksum = masked(body)
        entry.size, entry.crc32c = len(body), int.from_bytes(checksum, "little")
        shard += body
        edit(name, entry)
        entries.append((name.encode(), entry.SerializeToString()))
    top = pb.BundleHeaderProto(**{"num_shards": shards, **(header or {})})
    top.version.producer = top.version.producer or 1
    listed = sorted([(b"", top.SerializeToString()), *entries, *extra])
    prefix.with_name(f"{prefix.name}.index").write_bytes(table(listed, method=method))
    for number, shard in enumerate(data):
        name = f"{prefix.name}.data-{number:05d}-of-{shards:05d}"
        prefix.with_name(name).write_bytes(shard)


def v1_value(
    name: str, array: np.ndarray, extents: Iterable[tuple[int, int]] | None = None
) -> bytes:
    """Return the value of one slice in a V1 table."""
    saved = pb.SavedTensorSlices()
    saved.data.name = name
    slice_into(saved.data.slice, [(0, -1)] * array.ndim if extents is None else extents)
    kind = dtype_from_numpy(array.dtype)
    flat = array.ravel()
    if np.iscomplexobj(flat):
        flat = flat.view(flat.real.dtype)
    elif flat.dtype == np.float16:
        flat = flat.view(np.uint16)
    getattr(saved.data.data, VALUE_FIELD[kind]).extend(flat.tolist())
    return saved.SerializeToString()


def v1_meta(
    tensors: dict[str, np.ndarray], slices: dict[str, list[list[tuple[int, int]]]] | None = None
) -> pb.SavedTensorSlices:
    """Return the metadata of a V1 table. Tensors without ``slices`` are stored whole."""
    saved = pb.SavedTensorSlices()
    saved.meta.versions.producer = 1
    for name, array in tensors.items():
        tensor = saved.meta.tensor.add(name=name, type=dtype_from_numpy(array.dtype))
        shape_into(tensor.shape, array.shape)
        for extents in (slices or {}).get(name, [[(0, -1)] * array.ndim]):
            slice_into(tensor.slice.add(), extents)
    return saved


def v1_table(
    meta: pb.SavedTensorSlices, values: dict[bytes, bytes], *, per_block: int = 8, method: int = 0
) -> bytes:
    """A V1 table of values by key."""
    entries = sorted([(b"", meta.SerializeToString()), *values.items()])
    return table(entries, per_block=per_block, method=method)
