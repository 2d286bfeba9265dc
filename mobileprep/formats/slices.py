"""Slices of tensors: how a partitioned variable is cut, and put together again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.protos import checkpoint_pb2 as pb

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
        region: what is wanted.
        kind: the element type.
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
        shape: the dimensions that the checkpoint has.

    Raises:
        InvalidGraphError: it cannot be read, or does not fit the shape.
    """
    *sizes, cut = spec.split(" ")
    try:
        dims = tuple(int(size) for size in sizes)
        extents = tuple(_extent(part) for part in cut.split(":"))
    except ValueError as error:
        message = f"{spec[:80]!r} is no slice of a tensor"
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
