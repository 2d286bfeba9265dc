"""Slicing, splitting, and joining tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
from msgspec import Struct

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import (
    axis_of,
    check_outputs,
    integers,
    same_type,
    scalar,
)
from mobileprep.ops.kernel import free, kernel
from mobileprep.ops.numerics.allocation import check_bytes
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    ShapeConflictError,
    add_dims,
    axis_index,
    declared_shape,
    divide_dim,
    merge,
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


@kernel("Concat", "ConcatV2", flops=free)
def concat(node: Node, *inputs: Array) -> Array:
    """Concatenate tensors along the axis in the first input, or since version 2 in the last."""
    axis, *parts = inputs if node.op == "Concat" else (inputs[-1], *inputs[:-1])
    same_type(node, *parts)
    check_bytes(sum(x.nbytes for x in parts), "the joined tensor")
    return np.concatenate(parts, axis=axis_of(scalar(axis), parts[0].ndim))


@shape_fn("Concat", "ConcatV2")
def concat_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of the inputs concatenated along an axis."""
    if args.node.op == "Concat":
        return [concatenated_shape(args.shapes[1:], args.scalar(0))]
    return [concatenated_shape(args.shapes[:-1], args.scalar(len(args.shapes) - 1))]


def concatenated_shape(shapes: Sequence[TensorShape], axis: int | None) -> TensorShape:
    """Return the shape of tensors concatenated along an axis, which is None if unknown."""
    known_shape = next((s for s in shapes if s is not None), None)
    if known_shape is None:
        return None
    if axis is None:
        return unknown_dims(len(known_shape))
    axis = axis_index(axis, len(known_shape))
    size = reduce(
        add_dims, (UNKNOWN if s is None else with_rank(s, len(known_shape))[axis] for s in shapes)
    )
    others = (s and (*s[:axis], UNKNOWN, *s[axis + 1 :]) for s in shapes)
    joined = reduce(merge, others, None) or known_shape
    return (*joined[:axis], size, *joined[axis + 1 :])


@kernel("ConcatOffset", flops=free)
def concat_offset(node: Node, axis: Array, *shapes: Array) -> tuple[Array, ...]:
    """Return the offset of each part in the concatenated tensor."""
    along = axis_of(scalar(axis), shapes[0].size)
    offsets, position = [], 0
    for dims in shapes:
        offset = np.zeros_like(dims)
        offset[along] = position
        position += dims[along].item()
        offsets.append(offset)
    return tuple(offsets)


@shape_fn("ConcatOffset")
def concat_offset_shape(args: ShapeArgs) -> OutputShapes:
    """Return a vector for each of the concatenated shapes."""
    return args.shapes[1:]


@kernel("Pack", flops=free)
def pack(node: Node, *inputs: Array) -> Array:
    """Stack tensors of one shape along a new axis."""
    same_type(node, *inputs)
    check_bytes(sum(x.nbytes for x in inputs), "the joined tensor")
    return np.stack(inputs, axis=axis_of(node.attr_int("axis", 0), inputs[0].ndim + 1))


@shape_fn("Pack")
def pack_shape(args: ShapeArgs) -> OutputShapes:
    """Return the inputs' common shape with an additional dimension, the number of inputs."""
    shape = reduce(merge, args.shapes, None)
    if shape is None:
        return [None]
    axis = axis_index(args.node.attr_int("axis", 0), len(shape) + 1)
    return [(*shape[:axis], len(args.shapes), *shape[axis:])]


shape_fn("ParallelConcat")(declared_shape)


@kernel("Split", flops=free)
def split(node: Node, axis: Array, x: Array) -> tuple[Array, ...]:
    """Split a tensor into equal parts along an axis."""
    along, count = axis_of(scalar(axis), x.ndim), node.attr_int("num_split")
    check_outputs(count)
    if x.shape[along] % count:
        message = f"{x.shape[along]} elements cannot be split into {count} equal parts"
        raise ValueError(message)
    return tuple(np.split(x, count, axis=along))


@shape_fn("Split")
def split_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of equal parts along an axis."""
    axis, shape, count = args.scalar(0), args.shapes[1], args.node.attr_int("num_split")
    if shape is None or axis is None:
        return [None if shape is None else unknown_dims(len(shape))] * count
    axis = axis_index(axis, len(shape))
    return [(*shape[:axis], divide_dim(shape[axis], count), *shape[axis + 1 :])] * count


@kernel("SplitV", flops=free)
def split_v(node: Node, x: Array, sizes: Array, axis: Array) -> tuple[Array, ...]:
    """Split a tensor into parts of given lengths along an axis; one length may be -1."""
    along, lengths = axis_of(scalar(axis), x.ndim), list(integers(sizes))
    extent = x.shape[along]
    if lengths.count(-1) == 1:
        lengths[lengths.index(-1)] = extent - sum(d for d in lengths if d != -1)
    if sum(lengths) != extent or any(d < 0 for d in lengths):
        message = f"lengths {lengths} do not add up to {extent}"
        raise ValueError(message)
    return tuple(np.split(x, np.cumsum(lengths[:-1]), axis=along))


@shape_fn("SplitV")
def split_v_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of parts of given sizes along an axis; one size may be -1 for the rest."""
    shape, sizes, axis = args.shapes[0], args.integers(1), args.scalar(2)
    count = args.node.attr_int("num_split")
    if shape is None or axis is None:
        return [None if shape is None else unknown_dims(len(shape))] * count
    axis = axis_index(axis, len(shape))
    before, after = shape[:axis], shape[axis + 1 :]
    if sizes is None or len(sizes) != count:
        # A single part is the whole.
        size = shape[axis] if count == 1 else UNKNOWN
        return [(*before, size, *after)] * count
    total = sum(s for s in sizes if s >= 0)
    rest = shape[axis] - total if shape[axis] >= 0 else UNKNOWN
    return [(*before, rest if s < 0 else s, *after) for s in sizes]


@kernel("Unpack", flops=free)
def unpack(node: Node, x: Array) -> tuple[Array, ...]:
    """Return the slices of x along an axis, without that axis."""
    along, count = axis_of(node.attr_int("axis", 0), x.ndim), node.attr_int("num")
    check_outputs(max(count, 1))
    if x.shape[along] != count:
        message = f"{x.shape[along]} slices cannot become {count} tensors"
        raise ValueError(message)
    moved = np.moveaxis(x, along, 0)
    return tuple(moved[i, ...] for i in range(count))


@shape_fn("Unpack")
def unpack_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape without an axis, for each element of that axis."""
    count, shape = args.node.attr_int("num"), args.shapes[0]
    if shape is None:
        return [None] * count
    axis = axis_index(args.node.attr_int("axis", 0), len(shape))
    merge_dim(shape[axis], count)
    return [(*shape[:axis], *shape[axis + 1 :])] * count
