"""Slices of tensors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np
from msgspec import Struct

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import axis_of, integers
from mobileprep.ops.cost import free
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    ShapeConflictError,
    merge_dim,
    shape_fn,
    unchanged,
    unknown_dims,
    with_rank,
)


def sliced_axis(node: Node, values: Array) -> int | None:
    """Return the axis whose slices have separate ranges, or None for a single range.

    A single slice counts as none: it has one range regardless of the mode.
    """
    axis = node.attr_int("axis", -1)
    if not -1 <= axis < values.ndim:
        message = f"node {node.name!r} ({node.op}): no axis {axis} among {values.ndim}"
        raise InvalidGraphError(message, "count the axis from the front, or give -1 for none")
    return None if axis == -1 or values.shape[axis] == 1 else axis


def along_axis(node: Node, end: Array, values: Array, axis: int | None) -> Array:
    """Reshape the ends of ranges to broadcast to their values.

    Args:
        end: the low or the high ends: a scalar, or a vector along the axis.
        axis: the axis from ``sliced_axis``.
    """
    expected = 1 if axis is None else values.shape[axis]
    if end.size != expected:
        message = f"node {node.name!r} ({node.op}) has {end.size} ends of ranges for {expected}"
        raise InvalidGraphError(message, "give one for each slice along the axis")
    shape = [1] * values.ndim
    if axis is not None:
        shape[axis] = expected
    return end.reshape(shape)


@kernel("Slice", flops=free)
def slice_(node: Node, x: Array, begin: Array, size: Array) -> Array:
    """Extract a block of x with a start and a size, -1 for the rest."""
    starts, sizes = integers(begin), integers(size)
    if len(starts) != x.ndim or len(sizes) != x.ndim:
        message = f"begin and size need {x.ndim} elements"
        raise ValueError(message)
    cut = []
    for start, length, extent in zip(starts, sizes, x.shape, strict=True):
        end = extent if length == -1 else start + length
        if not 0 <= start <= end <= extent:
            message = f"{length} elements from {start} do not lie within {extent}"
            raise ValueError(message)
        cut.append(slice(start, end))
    # In numpy, a slice of a scalar is a number instead of an array.
    return np.asarray(x[tuple(cut)])


@shape_fn("Slice")
def slice_shape(args: ShapeArgs) -> OutputShapes:
    """Return the given sizes; -1 selects the rest of a dimension."""
    shape, begin, size = args.shapes[0], args.integers(1), args.as_shape(2)
    ranks = [len(s) for s in (shape, begin, size) if s is not None]
    counts = [with_rank(args.shapes[i], 1)[0] for i in (1, 2)]
    ranks += [c for c in counts if c >= 0]
    if not ranks:
        return [None]
    shape = with_rank(shape, reduce(merge_dim, ranks))
    sizes = args.integers(2)
    if sizes is None or len(sizes) != len(shape):
        return [size if size is not None else unknown_dims(len(shape))]
    starts = begin or unknown_dims(len(shape))
    return [tuple(map(_slice_size, shape, starts, sizes))]


def _slice_size(extent: int, start: int, size: int) -> int:
    if size >= 0:
        if extent >= 0 and (size > extent or start + size > extent):
            message = f"{size} elements from {start} do not lie within {extent}"
            raise ShapeConflictError(message)
        return size
    return extent - start if extent >= 0 and start >= 0 else UNKNOWN


@kernel("Roll", shape=unchanged, flops=free)
def roll(node: Node, x: Array, shift: Array, axis: Array) -> Array:
    """Shift the elements of x along axes, with wraparound."""
    axes = tuple(axis_of(a, x.ndim) for a in integers(axis))
    return np.roll(x, integers(shift), axes)


Bounds = tuple[int | None, int | None]


Index = int | slice | None


class _Masks(Struct, frozen=True):
    """The masks of a StridedSlice node, with a bit for each entry of its index."""

    begin: int
    end: int
    ellipsis: int
    new_axis: int
    shrink_axis: int

    @classmethod
    def of(cls, node: Node) -> _Masks:
        return cls(*(node.attr_int(f"{name}_mask", 0) for name in cls.__struct_fields__))

    def kinds(self, count: int) -> list[str]:
        """Return the kind of each entry; a new axis at an ellipsis is ignored."""
        return [
            "ellipsis" if self.ellipsis >> i & 1 else "new" if self.new_axis >> i & 1 else "index"
            for i in range(count)
        ]


@kernel("StridedSlice", flops=free)
def strided_slice(node: Node, x: Array, begin: Array, end: Array, strides: Array) -> Array:
    """Index x like Python; the masks mark open ends, "...", new axes, and single elements."""
    # The ellipsis keeps a single element an array.
    index = (*strided_index(node, x.shape, begin, end, strides), ...)
    return x[index]


@shape_fn("StridedSlice")
def strided_slice_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of the input indexed like Python; unknown bounds cause unknown sizes."""
    shape, strides = args.shapes[0], args.integers(3)
    if shape is None or strides is None:
        return [None]
    begins, ends = args.integers(1), args.integers(2)
    for bounds in (begins, ends):
        if bounds is not None and len(bounds) != len(strides):
            message = f"{len(bounds)} bounds, but {len(strides)} strides"
            raise ShapeConflictError(message)
    return [tuple(_sizes(args.node, shape, begins, ends, strides))]


def strided_index(
    node: Node, shape: tuple[int, ...], begin: Array, end: Array, strides: Array
) -> tuple[Index, ...]:
    """Return the numpy index for a StridedSlice node and an input of a shape."""
    begins, ends, steps = integers(begin), integers(end), integers(strides)
    if not len(begins) == len(ends) == len(steps):
        message = "begin, end and strides differ in length"
        raise ValueError(message)
    masks = _Masks.of(node)
    kinds = masks.kinds(len(steps))
    whole = len(shape) - kinds.count("index")
    if whole < 0:
        message = f"{kinds.count('index')} axes are indexed, and there are {len(shape)}"
        raise ValueError(message)
    index: list[Index] = []
    axis = 0
    for i, kind in enumerate(kinds):
        if kind == "ellipsis":
            index += [slice(None)] * whole
            axis += whole
        elif kind == "new":
            index.append(None)
        else:
            index.append(_entry(masks, i, (begins[i], ends[i], steps[i]), shape[axis]))
            axis += 1
    return tuple(index)


def _entry(masks: _Masks, i: int, entry: tuple[int, int, int], extent: int) -> int | slice:
    first, last, step = entry
    if step == 0:
        message = "a stride cannot be 0"
        raise ValueError(message)
    if masks.shrink_axis >> i & 1:
        # Both masks are ignored for a single element.
        if not -extent <= first < extent or step < 0:
            message = f"no element {first} among {extent}"
            raise ValueError(message)
        return first
    return slice(
        None if masks.begin >> i & 1 else first, None if masks.end >> i & 1 else last, step
    )


def _sizes(
    node: Node,
    shape: tuple[int, ...],
    begins: tuple[int, ...] | None,
    ends: tuple[int, ...] | None,
    strides: tuple[int, ...],
) -> Iterator[int]:
    masks = _Masks.of(node)
    kinds = masks.kinds(len(strides))
    indexed = kinds.count("index")
    if indexed > len(shape):
        message = f"{indexed} dimensions are indexed, and there are {len(shape)}"
        raise ShapeConflictError(message)
    remaining = list(shape)
    for i, kind in enumerate(kinds):
        if kind == "ellipsis":
            whole = len(shape) - indexed
            yield from remaining[:whole]
            del remaining[:whole]
        elif kind == "new":
            yield 1
        else:
            size = remaining.pop(0)
            if not masks.shrink_axis >> i & 1:
                begin = None if begins is None else begins[i]
                end = None if ends is None else ends[i]
                opened = masks.begin >> i & 1, masks.end >> i & 1
                yield _size(size, (begin, end), opened, strides[i])
    yield from remaining


def _size(extent: int, bounds: Bounds, opened: tuple[int, int], stride: int) -> int:
    if stride == 0:
        message = "a stride cannot be 0"
        raise ShapeConflictError(message)
    begin, end = (None if o else b for o, b in zip(opened, bounds, strict=True))
    unknown = any(not o and b is None for o, b in zip(opened, bounds, strict=True))
    if extent < 0 or unknown:
        return UNKNOWN
    return len(range(*slice(begin, end, stride).indices(extent)))


@kernel("TensorStridedSliceUpdate", shape=unchanged, flops=free)
def strided_slice_update(
    node: Node, x: Array, begin: Array, end: Array, strides: Array, value: Array
) -> Array:
    """Copy x and set the part that ``StridedSlice`` would select."""
    out: Array = x.copy()
    out[strided_index(node, x.shape, begin, end, strides)] = value
    return out
