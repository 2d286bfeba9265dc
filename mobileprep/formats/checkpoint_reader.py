"""The common interface to the tensors of checkpoints of both formats."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message
from msgspec import Struct
from numpy.typing import NDArray

from mobileprep.errors import (
    CorruptFileError,
    InternalError,
    InvalidGraphError,
    UnsupportedError,
    did_you_mean,
)
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import checkpoint_pb2 as pb
from mobileprep.formats.protos import graph_pb2 as graph

_HINT: Final = "the file is damaged; copy or save it again"
_NEAR: Final = 3
# Comparing names takes time in proportion to their length and number, which are untrusted.
_LONGEST: Final = 300
_COMPARED: Final = 10_000


class Checkpoint(ABC):
    """The tensors of a checkpoint, each read and verified when it is needed.

    Args:
        prefix: common path prefix of its files.
        files: all of its files.
        tensors: its tensors by name.
    """

    def __init__(
        self, prefix: Path, files: tuple[Path, ...], tensors: Mapping[str, StoredTensor]
    ) -> None:
        self.prefix = prefix
        self.files = tuple(sorted(files))
        self._tensors = dict(sorted(tensors.items()))
        self._closed = False

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def close(self) -> None:
        """Close the files. Arrays that are already read remain valid."""
        self._closed = True
        self._release()

    def names(self) -> list[str]:
        """Return the names of all tensors, sorted; a partitioned tensor has a single name."""
        return list(self._tensors)

    def entry(self, name: str) -> TensorEntry:
        """Return the dtype and shape of a tensor."""
        return self._find(name).entry

    def read(self, name: str, spec: str = "") -> Array:
        """Read the elements of a tensor, verify their checksums, and join slices.

        If the elements are contiguous in a file, the array is a view of that file, which may be
        unaligned.

        Args:
            name: name of the tensor.
            spec: slice in the format of restore ops (``10 4 0,5:-``); empty for the whole tensor.

        Returns:
            A read-only array with the shape of the tensor or slice; quantized dtypes as plain
            integers, strings as objects of type bytes.

        Raises:
            CorruptFileError: if the tensor does not exist, or the file is damaged.
            InvalidGraphError: if the slice is invalid.
            UnsupportedError: if the dtype cannot be read.
        """
        if self._closed:
            message = f"{self.prefix} is read after it was closed"
            raise InternalError(message)
        stored = self._find(name)
        kind = element_type(stored.entry.dtype)
        if kind is None:
            message = f"{name!r} is of type {stored.entry.dtype.short}, which cannot be read"
            raise UnsupportedError(message, "leave it out", str(self.prefix))
        shape = stored.entry.shape
        if not spec and len(stored.slices) == 1 and is_whole(stored.slices[0]):
            return self._read_slice(name, stored.slices[0], whole(shape))
        region = region_of(spec, shape) if spec else whole(shape)
        # Verify all slices before allocating the joined tensor.
        parts = [
            (box, self._read_slice(name, extents, box))
            for extents, box in zip(stored.slices, self._boxes(name, stored), strict=True)
            if overlap(box, region) is not None
        ]
        return gather(parts, region, kind)

    def _find(self, name: str) -> StoredTensor:
        stored = self._tensors.get(name)
        if stored is None:
            compared = islice((n for n in self._tensors if len(n) <= _LONGEST), _COMPARED)
            near = did_you_mean(name[:_LONGEST], compared, count=_NEAR)
            hint = f"the nearest: {', '.join(near)}" if near else f"it holds {len(self._tensors)}"
            message = f"holds no tensor named {name[:_LONGEST]!r}"
            raise CorruptFileError(message, hint, str(self.prefix))
        return stored

    def _boxes(self, name: str, stored: StoredTensor) -> list[Box]:
        """Return the boxes of the slices, which make up the whole tensor without overlap."""
        shape = stored.entry.shape
        boxes = [box for s in stored.slices if (box := box_of(s, shape)) is not None]
        inside = len(boxes) == len(stored.slices)
        fault = tiling_fault(boxes, shape) if inside else "lie outside of it"
        if fault:
            message = f"the slices of {name!r} {fault}"
            raise CorruptFileError(message, _HINT, str(self.prefix))
        return boxes

    @abstractmethod
    def _read_slice(self, name: str, extents: Extents, box: Box) -> Array:
        """Return the verified elements of a slice, read-only, in the shape of its box."""

    @abstractmethod
    def _release(self) -> None:
        """Drop the references to the files."""


_SEPARATOR: Final = b"\0\1"


def slice_key(name: str, extents: Iterable[tuple[int, int]]) -> bytes:
    """Return the key of a tensor slice in a checkpoint.

    Args:
        name: name of the tensor.
        extents: stored start and length for each dimension; a length of -1 means the whole
            dimension.
    """
    numbers = list(extents)
    parts = [_number(0), _text(name.encode()), _number(len(numbers))]
    for start, length in numbers:
        parts += (_signed(start), _signed(length))
    return b"".join(parts)


def _text(value: bytes) -> bytes:
    """Encode UTF-8 with a separator; the escape for the byte 255 is not needed in UTF-8."""
    return value.replace(b"\0", b"\0\xff") + _SEPARATOR


def _number(value: int) -> bytes:
    """Encode the length and the bytes of a value in the fewest bytes, big-endian."""
    width = (value.bit_length() + 7) // 8
    return bytes([width]) + value.to_bytes(width, "big")


def _signed(value: int) -> bytes:
    """Encode a value in ``width`` big-endian bytes, with the top ``width`` bits flipped.

    After a sign bit, they encode the width: seven bits of each byte remain for the value.
    """
    width = (value if value >= 0 else ~value).bit_length() // 7 + 1
    header = ((1 << width) - 1) << (7 * width)
    return (value % (1 << 8 * width) ^ header).to_bytes(width, "big")


Array = NDArray[Any]
Extents = tuple[tuple[int, int], ...]
"""Stored start and length for each dimension; a length of -1 means the whole dimension."""
Box = tuple[slice, ...]
"""Start and stop for each dimension, all known and inside the tensor."""

_ALL: Final = -1
# Maximum cells of the grid of all slice boundaries; partitioners create one cell per slice.
_MOST_CELLS: Final = 1 << 24


def extents_of(proto: pb.TensorSliceProto) -> Extents:
    """Return the extents of a stored slice."""
    return tuple((e.start, e.length if e.HasField("length") else _ALL) for e in proto.extent)


def is_whole(extents: Extents) -> bool:
    """Return whether a slice is stored as the whole dimension in every dimension."""
    return all(length == _ALL for _, length in extents)


def whole(shape: Sequence[int]) -> Box:
    """Return the box of all elements."""
    return tuple(slice(0, size) for size in shape)


def box_of(extents: Extents, shape: Sequence[int]) -> Box | None:
    """Return the box of a slice in a tensor of ``shape``, or None if it does not fit."""
    if len(extents) != len(shape):
        return None
    box = []
    for (start, length), size in zip(extents, shape, strict=True):
        if length == _ALL:
            box.append(slice(0, size))
        elif start < 0 or length < 0 or start + length > size:
            return None
        else:
            box.append(slice(start, start + length))
    return tuple(box)


def shape_of_box(box: Box) -> tuple[int, ...]:
    """Return the size of a box in each dimension."""
    return tuple(side.stop - side.start for side in box)


def overlap(one: Box, other: Box) -> Box | None:
    """Return the intersection of two boxes, or None if it is empty."""
    shared = tuple(
        slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(one, other, strict=True)
    )
    return None if any(side.start >= side.stop for side in shared) else shared


def tiling_fault(boxes: Sequence[Box], shape: Sequence[int]) -> str:
    """Return why boxes do not cover a tensor of ``shape`` exactly once; empty if they do."""
    if 0 in shape or (len(boxes) == 1 and boxes[0] == whole(shape)):
        return ""
    cuts = [_cuts(boxes, axis, size) for axis, size in enumerate(shape)]
    counts = [len(c) - 1 for c in cuts]
    if math.prod(counts) > _MOST_CELLS:
        return "are cut too irregularly"
    covered = np.zeros(counts, dtype=np.bool_)
    for box in boxes:
        cells = tuple(slice(c[s.start], c[s.stop]) for c, s in zip(cuts, box, strict=True))
        if covered[cells].any():
            return "overlap"
        covered[cells] = True
    return "" if covered.all() else "leave a part out"


def _cuts(boxes: Sequence[Box], axis: int, size: int) -> dict[int, int]:
    """Return the indices of all positions on an axis where a box starts or stops."""
    edges = {0, size, *(b[axis].start for b in boxes), *(b[axis].stop for b in boxes)}
    return {edge: number for number, edge in enumerate(sorted(edges))}


def gather(parts: Sequence[tuple[Box, Array]], region: Box, kind: np.dtype[Any]) -> Array:
    """Return the elements of a region, read-only: a view of one part if possible, else joined.

    Args:
        parts: boxes and their elements, which together contain the region.
    """
    for box, array in parts:
        if overlap(box, region) == region:
            # The ellipsis preserves 0-D arrays.
            inner: tuple[Any, ...] = (*_inside(region, box), ...)
            return read_only(array[inner])
    joined = np.empty(shape_of_box(region), dtype=kind)
    for box, array in parts:
        shared = overlap(box, region)
        if shared is not None:
            joined[_inside(shared, region)] = array[_inside(shared, box)]
    return read_only(joined)


def _inside(box: Box, outer: Box) -> Box:
    """Return a box relative to the start of an enclosing box."""
    return tuple(
        slice(a.start - b.start, a.stop - b.start) for a, b in zip(box, outer, strict=True)
    )


def read_only(array: Array) -> Array:
    """Return a read-only view of an array."""
    view: Array = array.view()
    view.flags.writeable = False
    return view


def region_of(spec: str, shape: Sequence[int]) -> Box:
    """Return the box of a ``shape_and_slices`` element of a save or restore op.

    Args:
        spec: shape of the whole tensor and the slice, as in ``10 4 0,5:-``.
        shape: shape of the tensor in the checkpoint.

    Raises:
        InvalidGraphError: if the slice is invalid.
    """
    *sizes, cut = spec.split(" ")
    try:
        dims = tuple(int(size) for size in sizes)
        extents = tuple(_extent(part) for part in cut.split(":"))
    except ValueError as error:
        message = f"{spec[:80]!r} is not a slice of a tensor"
        raise InvalidGraphError(message, "write it as '10 4 0,5:-'") from error
    box = box_of(extents, shape) if dims == tuple(shape) else None
    if box is None:
        message = f"the slice {spec[:80]!r} does not fit a tensor of shape {list(shape)}"
        raise InvalidGraphError(message, "the graph and the checkpoint are of different models")
    return box


def _extent(text: str) -> tuple[int, int]:
    if text == "-":
        return 0, _ALL
    start, length = text.split(",")
    return int(start), int(length)


M = TypeVar("M", bound=Message)

# Limits of all supported numpy releases.
_MOST_DIMS: Final = 32
_MOST_ELEMENTS: Final = 1 << 56
_CONSUMER: Final = 1


class TensorEntry(Struct, frozen=True):
    """The dtype of a tensor, and its shape with all slices joined."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements; 0 for strings, whose length is not known before reading."""
        return self.size * self.dtype.itemsize


class StoredTensor(Struct, frozen=True):
    """A tensor and its stored slices: usually a single one with the whole tensor."""

    entry: TensorEntry
    slices: tuple[Extents, ...]


def element_type(dtype: DType) -> np.dtype[Any] | None:
    """Return the numpy dtype of a tensor's elements, or None if they cannot be read (resource)."""
    return np.dtype(object) if dtype is DType.STRING else dtype.numpy


def parse(message: type[M], data: bytes | memoryview, where: str) -> M:
    """Parse a message.

    Raises:
        CorruptFileError: if the bytes are not a valid message.
    """
    try:
        return message.FromString(bytes(data))
    except DecodeError as error:
        what = f"holds no {message.DESCRIPTOR.name} where one is expected"
        raise CorruptFileError(what, "the file is damaged, or no checkpoint", where) from error


def entry_of(dtype: int, shape: graph.TensorShapeProto, where: str) -> TensorEntry:
    """Return the dtype and shape of a tensor from its record.

    Raises:
        CorruptFileError: if the shape is invalid.
    """
    dims = tuple(d.size for d in shape.dim)
    if shape.unknown_rank or any(d < 0 for d in dims) or len(dims) > _MOST_DIMS:
        message = f"the shape of a tensor is recorded as {_short(dims)}"
        raise CorruptFileError(message, "the file is damaged", where)
    # numpy only multiplies the sizes that are not zero.
    if math.prod(d for d in dims if d) > _MOST_ELEMENTS:
        message = f"no tensor can have the shape {list(dims)}"
        raise CorruptFileError(message, "the file is damaged", where)
    return TensorEntry(DType(dtype), dims)


def check_versions(versions: graph.VersionDef, where: str) -> None:
    """Check that a checkpoint does not require a newer reader.

    Raises:
        UnsupportedError: if it does.
    """
    if versions.min_consumer > _CONSUMER or _CONSUMER in versions.bad_consumers:
        message = f"is a checkpoint of version {versions.producer}, which asks for a newer reader"
        raise UnsupportedError(message, "save it with an older TensorFlow", where)


def _short(dims: tuple[int, ...]) -> str:
    return f"{list(dims[:8])}" if len(dims) <= 8 else f"{len(dims)} dimensions"
