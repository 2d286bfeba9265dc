"""The one interface to the tensors of a checkpoint, whatever its format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Final

from mobileprep.errors import CorruptFileError, InternalError, UnsupportedError, did_you_mean
from mobileprep.formats.checkpoint_records import StoredTensor, TensorEntry, element_type
from mobileprep.formats.slices import (
    Array,
    Box,
    Extents,
    box_of,
    gather,
    is_whole,
    overlap,
    region_of,
    tiling_fault,
    whole,
)

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
        """A tensor's type and shape.

        Raises:
            CorruptFileError: there is no tensor of that name.
        """
        return self._find(name).entry

    def read(self, name: str, spec: str = "") -> Array:
        """A tensor's elements, read-only, verified by their checksum, slices joined.

        Where one contiguous piece of a file holds them they are a view on that file, which may
        be unaligned.

        Args:
            name: the tensor's name.
            spec: a part of it as restore ops name it (``10 4 0,5:-``); all of it where empty.

        Returns:
            an array of the tensor's or the part's shape; quantized types as plain integers,
            strings as objects of type bytes.

        Raises:
            CorruptFileError: there is none of that name, or it is damaged.
            UnsupportedError: its type has no elements that can be read.
            InvalidGraphError: ``spec`` is no part of it.
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
