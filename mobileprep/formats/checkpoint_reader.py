"""The one interface to the tensors of a checkpoint, whatever its format."""

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
# Comparing names takes time by their length and number, which a file may choose.
_LONGEST: Final = 300
_COMPARED: Final = 10_000


class Checkpoint(ABC):
    """The tensors of a checkpoint, each read and verified when asked for.

    Args:
        prefix: the path that all its files begin with.
        files: all its files.
        tensors: what it holds, by name.
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
        """Let go of the files. Arrays that were read stay valid; more cannot be read."""
        self._closed = True
        self._release()

    def names(self) -> list[str]:
        """The names of all tensors, sorted; a partitioned one stands once."""
        return list(self._tensors)

    def entry(self, name: str) -> TensorEntry:
        """A tensor's type and shape."""
        return self._find(name).entry

    def read(self, name: str, spec: str = "") -> Array:
        """A tensor's elements, read-only, verified by their checksum, slices joined.

        Where one contiguous piece of a file holds them they are a view on that file, which may
        be unaligned.

        Args:
            spec: a part of it as restore ops name it (``10 4 0,5:-``); all of it where empty.

        Returns:
            an array of the tensor's or the part's shape; quantized types as plain integers,
            strings as objects of type bytes.
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
        # All pieces are verified before room for the joined tensor is made.
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
        """Where the slices lie, which make up the whole tensor without overlap."""
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
        """The verified elements of one slice, read-only, in the shape of its box."""

    @abstractmethod
    def _release(self) -> None:
        """Drop what holds the files."""


_SEPARATOR: Final = b"\0\1"


def slice_key(name: str, extents: Iterable[tuple[int, int]]) -> bytes:
    """The key under which a checkpoint holds one slice of a tensor.

    Args:
        extents: start and length for each dimension, as stored; a length of -1 takes all of it.
    """
    numbers = list(extents)
    parts = [_number(0), _text(name.encode()), _number(len(numbers))]
    for start, length in numbers:
        parts += (_signed(start), _signed(length))
    return b"".join(parts)


def _text(value: bytes) -> bytes:
    """UTF-8 and a separator that no text holds; the other escape, of 255, UTF-8 never needs."""
    return value.replace(b"\0", b"\0\xff") + _SEPARATOR


def _number(value: int) -> bytes:
    """A length byte and the value in as few bytes as hold it, high byte first."""
    width = (value.bit_length() + 7) // 8
    return bytes([width]) + value.to_bytes(width, "big")


def _signed(value: int) -> bytes:
    """``width`` bytes, high byte first, of which the top ``width`` bits are flipped.

    After a sign bit they tell the width: seven bits a byte are left for the value.
    """
    width = (value if value >= 0 else ~value).bit_length() // 7 + 1
    header = ((1 << width) - 1) << (7 * width)
    return (value % (1 << 8 * width) ^ header).to_bytes(width, "big")


Array = NDArray[Any]
Extents = tuple[tuple[int, int], ...]
"""Start and length for each dimension, as stored; a length of -1 takes all of it."""
Box = tuple[slice, ...]
"""The same with start and stop, all known and inside the tensor."""

_ALL: Final = -1
# Cells of the grid that the cuts of all slices make; partitioners make one cell a slice.
_MOST_CELLS: Final = 1 << 24


def extents_of(proto: pb.TensorSliceProto) -> Extents:
    """A stored slice's extents."""
    return tuple((e.start, e.length if e.HasField("length") else _ALL) for e in proto.extent)


def is_whole(extents: Extents) -> bool:
    """Whether a slice is stored as "all of it" in every dimension."""
    return all(length == _ALL for _, length in extents)


def whole(shape: Sequence[int]) -> Box:
    """The box of all elements."""
    return tuple(slice(0, size) for size in shape)


def box_of(extents: Extents, shape: Sequence[int]) -> Box | None:
    """Where a slice lies in a tensor of ``shape``, or None where it does not fit in."""
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
    """A box's size in each dimension."""
    return tuple(side.stop - side.start for side in box)


def overlap(one: Box, other: Box) -> Box | None:
    """The elements that two boxes share, or None."""
    shared = tuple(
        slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(one, other, strict=True)
    )
    return None if any(side.start >= side.stop for side in shared) else shared


def tiling_fault(boxes: Sequence[Box], shape: Sequence[int]) -> str:
    """Why boxes do not make up a tensor of ``shape``, each element once; empty if they do."""
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
    """Every place on an axis where a box starts or stops, numbered in order."""
    edges = {0, size, *(b[axis].start for b in boxes), *(b[axis].stop for b in boxes)}
    return {edge: number for number, edge in enumerate(sorted(edges))}


def gather(parts: Sequence[tuple[Box, Array]], region: Box, kind: np.dtype[Any]) -> Array:
    """The elements of a region, read-only: a view where one part holds them all, else joined.

    Args:
        parts: boxes and their elements; together they hold the whole region.
    """
    for box, array in parts:
        if overlap(box, region) == region:
            # The ellipsis keeps a scalar an array.
            inner: tuple[Any, ...] = (*_inside(region, box), ...)
            return read_only(array[inner])
    joined = np.empty(shape_of_box(region), dtype=kind)
    for box, array in parts:
        shared = overlap(box, region)
        if shared is not None:
            joined[_inside(shared, region)] = array[_inside(shared, box)]
    return read_only(joined)


def _inside(box: Box, outer: Box) -> Box:
    """A box counted from the start of another one around it."""
    return tuple(
        slice(a.start - b.start, a.stop - b.start) for a, b in zip(box, outer, strict=True)
    )


def read_only(array: Array) -> Array:
    """The same elements, not to be written to."""
    view: Array = array.view()
    view.flags.writeable = False
    return view


def region_of(spec: str, shape: Sequence[int]) -> Box:
    """The box that a save or restore op's ``shape_and_slices`` element names.

    Args:
        spec: the whole tensor's dimensions and the slice, as in ``10 4 0,5:-``.
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

# What numpy can hold on every release that we admit.
_MOST_DIMS: Final = 32
_MOST_ELEMENTS: Final = 1 << 56
_CONSUMER: Final = 1


class TensorEntry(Struct, frozen=True):
    """A tensor's description: its element type and the shape of all of it, slices joined."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements; 0 for strings, whose length shows only when they are read."""
        return self.size * self.dtype.itemsize


class StoredTensor(Struct, frozen=True):
    """A tensor and the slices it is stored in: one that is all of it, as a rule."""

    entry: TensorEntry
    slices: tuple[Extents, ...]


def element_type(dtype: DType) -> np.dtype[Any] | None:
    """The numpy type of a tensor's elements, or None where they cannot be read (resource)."""
    return np.dtype(object) if dtype is DType.STRING else dtype.numpy


def parse(message: type[M], data: bytes | memoryview, where: str) -> M:
    """A message from its bytes."""
    try:
        return message.FromString(bytes(data))
    except DecodeError as error:
        what = f"holds no {message.DESCRIPTOR.name} where one is expected"
        raise CorruptFileError(what, "the file is damaged, or no checkpoint", where) from error


def entry_of(dtype: int, shape: graph.TensorShapeProto, where: str) -> TensorEntry:
    """A tensor's description from a recorded type and shape."""
    dims = tuple(d.size for d in shape.dim)
    if shape.unknown_rank or any(d < 0 for d in dims) or len(dims) > _MOST_DIMS:
        message = f"the shape of a tensor is recorded as {_short(dims)}"
        raise CorruptFileError(message, "the file is damaged", where)
    # Zeros left out: the others alone are what numpy multiplies.
    if math.prod(d for d in dims if d) > _MOST_ELEMENTS:
        message = f"no tensor can have the shape {list(dims)}"
        raise CorruptFileError(message, "the file is damaged", where)
    return TensorEntry(DType(dtype), dims)


def check_versions(versions: graph.VersionDef, where: str) -> None:
    """Refuse a checkpoint that says that readers as old as we cannot read it."""
    if versions.min_consumer > _CONSUMER or _CONSUMER in versions.bad_consumers:
        message = f"is a checkpoint of version {versions.producer}, which asks for a newer reader"
        raise UnsupportedError(message, "save it with an older TensorFlow", where)


def _short(dims: tuple[int, ...]) -> str:
    return f"{list(dims[:8])}" if len(dims) <= 8 else f"{len(dims)} dimensions"
