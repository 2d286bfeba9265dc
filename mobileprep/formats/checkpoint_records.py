"""What both checkpoint formats record about tensors, read from its messages and checked."""

from __future__ import annotations

import math
from typing import Any, Final, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as graph
from mobileprep.formats.slices import Extents
from mobileprep.frozen import dataclass

M = TypeVar("M", bound=Message)

# What numpy can hold on every release that we admit.
_MOST_DIMS: Final = 32
_MOST_ELEMENTS: Final = 1 << 56
_CONSUMER: Final = 1


@dataclass(frozen=True)
class TensorEntry:
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


@dataclass(frozen=True)
class StoredTensor:
    """A tensor and the slices it is stored in: one that is all of it, as a rule."""

    entry: TensorEntry
    slices: tuple[Extents, ...]


def element_type(dtype: DType) -> np.dtype[Any] | None:
    """The numpy type of a tensor's elements, or None where they cannot be read (resource)."""
    return np.dtype(object) if dtype is DType.STRING else dtype.numpy


def parse(message: type[M], data: bytes | memoryview, where: str) -> M:
    """A message from its bytes.

    Raises:
        CorruptFileError: the bytes are no such message.
    """
    try:
        return message.FromString(bytes(data))
    except DecodeError as error:
        what = f"holds no {message.DESCRIPTOR.name} where one is expected"
        raise CorruptFileError(what, "the file is damaged, or no checkpoint", where) from error


def entry_of(dtype: int, shape: graph.TensorShapeProto, where: str) -> TensorEntry:
    """A tensor's description from a recorded type and shape.

    Raises:
        CorruptFileError: the shape is unknown, negative or impossibly large.
    """
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
    """Refuse a checkpoint that says that readers as old as we cannot read it.

    Raises:
        UnsupportedError: so it says.
    """
    if versions.min_consumer > _CONSUMER or _CONSUMER in versions.bad_consumers:
        message = f"is a checkpoint of version {versions.producer}, which asks for a newer reader"
        raise UnsupportedError(message, "save it with an older TensorFlow", where)


def _short(dims: tuple[int, ...]) -> str:
    return f"{list(dims[:8])}" if len(dims) <= 8 else f"{len(dims)} dimensions"
