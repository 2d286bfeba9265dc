"""Ops that cut tensors apart and read parts of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import axis_of, check_outputs, integers, scalar
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import (
    UNKNOWN,
    ShapeConflictError,
    axis_index,
    divide_dim,
    merge_dim,
    unknown_dims,
    with_rank,
)
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

Bounds = tuple[int | None, int | None]


Index = int | slice | None


@kernel("Slice")
def slice_(node: Node, x: Array, begin: Array, size: Array) -> Array:
    """A block of x: where it begins, and its size, -1 for all the rest."""
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
    return x[tuple(cut)]


@shape_fn("Slice")
def slice__shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The given sizes; -1 for what is left behind the beginning."""
    shape, begin, size = args.shapes[0], args.integers(1), args.as_shape(2)
    ranks = [len(s) for s in (shape, begin, size) if s is not None]
    counts = [with_rank(args.shapes[i], 1)[0] for i in (1, 2)]
    ranks += [c for c in counts if c >= 0]
    if not ranks:
        return [None]
    shape = with_rank(shape, ranks[0])
    wanted = args.integers(2)
    if wanted is None or len(wanted) != len(shape):
        return [size if size is not None else unknown_dims(len(shape))]
    starts = begin or unknown_dims(len(shape))
    return [tuple(map(_slice_size, shape, starts, wanted))]


flop_rule("Slice")(free)


def _slice_size(extent: int, start: int, size: int) -> int:
    if size >= 0:
        if extent >= 0 and (size > extent or start + size > extent):
            message = f"{size} elements from {start} do not lie within {extent}"
            raise ShapeConflictError(message)
        return size
    return extent - start if extent >= 0 and start >= 0 else UNKNOWN


@dataclass(frozen=True, slots=True)
class _Masks:
    """The bits of a StridedSlice node, a bit for each entry of its index."""

    begin: int
    end: int
    ellipsis: int
    new_axis: int
    shrink: int


@kernel("StridedSlice")
def strided_slice(node: Node, x: Array, begin: Array, end: Array, strides: Array) -> Array:
    """x indexed as Python would, masks telling open ends, "...", new axes and single elements."""
    # The ellipsis keeps a single element an array.
    index = (*strided_index(node, x.ndim, begin, end, strides, x.shape), ...)
    return x[index]


@shape_fn("StridedSlice")
def strided_slice_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input indexed as Python would; sizes between unknown bounds are unknown."""
    shape, strides = args.shapes[0], args.integers(3)
    if shape is None or strides is None:
        return [None]
    begins, ends = args.integers(1), args.integers(2)
    for bounds in (begins, ends):
        if bounds is not None and len(bounds) != len(strides):
            message = f"{len(bounds)} bounds and {len(strides)} strides are given"
            raise ShapeConflictError(message)
    return [tuple(_sizes(args.node, shape, begins, ends, strides))]


flop_rule("StridedSlice")(free)


def strided_index(
    node: Node, rank: int, begin: Array, end: Array, strides: Array, shape: tuple[int, ...]
) -> tuple[Index, ...]:
    """The numpy index that a StridedSlice node stands for.

    Raises:
        ValueError: a stride of 0, too many entries, or an element out of range.
    """
    masks = _Masks(
        *(
            node.attr_int(f"{name}_mask", 0)
            for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
        )
    )
    begins, ends, steps = integers(begin), integers(end), integers(strides)
    if not len(begins) == len(ends) == len(steps):
        message = "begin, end and strides differ in length"
        raise ValueError(message)
    return tuple(_entries(masks, begins, ends, steps, rank, shape))


def _entries(
    masks: _Masks,
    begins: tuple[int, ...],
    ends: tuple[int, ...],
    steps: tuple[int, ...],
    rank: int,
    shape: tuple[int, ...],
) -> Iterator[Index]:
    consumed = sum(1 for i in range(len(begins)) if not (masks.new_axis | masks.ellipsis) >> i & 1)
    if masks.ellipsis:
        # A new-axis bit under the ellipsis is ignored.
        at = (masks.ellipsis & -masks.ellipsis).bit_length() - 1
        consumed = sum(1 for i in range(len(begins)) if i != at and not masks.new_axis >> i & 1)
    if consumed > rank:
        message = f"{consumed} axes are indexed, and there are {rank}"
        raise ValueError(message)
    axis = 0
    for i, (first, last, step) in enumerate(zip(begins, ends, steps, strict=True)):
        if masks.ellipsis >> i & 1:
            for _ in range(rank - consumed):
                yield slice(None)
            axis += rank - consumed
        elif masks.new_axis >> i & 1:
            yield None
        else:
            yield _entry(masks, i, (first, last, step), shape[axis])
            axis += 1


def _entry(masks: _Masks, i: int, entry: tuple[int, int, int], extent: int) -> int | slice:
    first, last, step = entry
    if step == 0:
        message = "a stride cannot be 0"
        raise ValueError(message)
    if masks.shrink >> i & 1:
        at = 0 if masks.begin >> i & 1 else first
        if not -extent <= at < extent or step < 0:
            message = f"there is no element {at} among {extent}"
            raise ValueError(message)
        return at
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
    masks = {
        name: node.attr_int(f"{name}_mask", 0)
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    kinds = list(_kinds(len(strides), masks["ellipsis"], masks["new_axis"]))
    indexed = kinds.count("index")
    if indexed > len(shape):
        message = f"{indexed} dimensions are indexed, and there are {len(shape)}"
        raise ShapeConflictError(message)
    left = list(shape)
    for i, kind in enumerate(kinds):
        if kind == "ellipsis":
            whole = len(shape) - indexed
            yield from left[:whole]
            del left[:whole]
        elif kind == "new":
            yield 1
        else:
            size = left.pop(0)
            if not masks["shrink_axis"] >> i & 1:
                begin = None if begins is None else begins[i]
                end = None if ends is None else ends[i]
                opened = masks["begin"] >> i & 1, masks["end"] >> i & 1
                yield _size(size, (begin, end), opened, strides[i])
    yield from left


def _kinds(count: int, ellipsis: int, new_axis: int) -> Iterator[str]:
    """What each entry of the index is; only the first "..." is one."""
    for i in range(count):
        if ellipsis >> i & 1:
            yield "ellipsis"
        else:
            yield "new" if new_axis >> i & 1 else "index"


def _size(extent: int, bounds: Bounds, opened: tuple[int, int], stride: int) -> int:
    if stride == 0:
        message = "a stride cannot be 0"
        raise ShapeConflictError(message)
    begin, end = (None if o else b for o, b in zip(opened, bounds, strict=True))
    unknown = any(not o and b is None for o, b in zip(opened, bounds, strict=True))
    if extent < 0 or unknown:
        return UNKNOWN
    return len(range(*slice(begin, end, stride).indices(extent)))


@kernel("TensorStridedSliceUpdate")
def strided_slice_update(
    node: Node, x: Array, begin: Array, end: Array, strides: Array, value: Array
) -> Array:
    """A copy of x with the part that ``StridedSlice`` would give set to another value."""
    out: Array = x.copy()
    out[strided_index(node, x.ndim, begin, end, strides, x.shape)] = value
    return out


flop_rule("TensorStridedSliceUpdate")(free)


@kernel("Split")
def split(node: Node, axis: Array, x: Array) -> tuple[Array, ...]:
    """Parts of equal length along an axis."""
    along, count = axis_of(scalar(axis), x.ndim), node.attr_int("num_split")
    check_outputs(count)
    if x.shape[along] % count:
        message = f"{x.shape[along]} elements cannot be split into {count} equal parts"
        raise ValueError(message)
    return tuple(np.split(x, count, axis=along))


@shape_fn("Split")
def split_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Equal parts along an axis."""
    axis, shape, count = args.scalar(0), args.shapes[1], args.node.attr_int("num_split")
    if shape is None or axis is None:
        return [None if shape is None else unknown_dims(len(shape))] * count
    axis = axis_index(axis, len(shape))
    return [(*shape[:axis], divide_dim(shape[axis], count), *shape[axis + 1 :])] * count


flop_rule("Split")(free)


@kernel("SplitV")
def split_v(node: Node, x: Array, sizes: Array, axis: Array) -> tuple[Array, ...]:
    """Parts of the given lengths along an axis, of which one may be -1."""
    along, lengths = axis_of(scalar(axis), x.ndim), list(integers(sizes))
    extent = x.shape[along]
    if lengths.count(-1) == 1:
        lengths[lengths.index(-1)] = extent - sum(d for d in lengths if d != -1)
    if sum(lengths) != extent or any(d < 0 for d in lengths):
        message = f"lengths {lengths} do not add up to {extent}"
        raise ValueError(message)
    return tuple(np.split(x, np.cumsum(lengths[:-1]), axis=along))


@shape_fn("SplitV")
def split_v_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Parts of given sizes along an axis, one of which may be -1 for the rest."""
    shape, sizes, axis = args.shapes[0], args.integers(1), args.scalar(2)
    count = args.node.attr_int("num_split")
    if shape is None or axis is None:
        return [None if shape is None else unknown_dims(len(shape))] * count
    axis = axis_index(axis, len(shape))
    before, after = shape[:axis], shape[axis + 1 :]
    if sizes is None or len(sizes) != count:
        # One part is the whole.
        size = shape[axis] if count == 1 else UNKNOWN
        return [(*before, size, *after)] * count
    given = sum(s for s in sizes if s >= 0)
    rest = shape[axis] - given if shape[axis] >= 0 else UNKNOWN
    return [(*before, rest if s < 0 else s, *after) for s in sizes]


flop_rule("SplitV")(free)


@kernel("Unpack")
def unpack(node: Node, x: Array) -> tuple[Array, ...]:
    """The slices of x along an axis, which goes away."""
    along, count = axis_of(node.attr_int("axis", 0), x.ndim), node.attr_int("num")
    check_outputs(max(count, 1))
    if x.shape[along] != count:
        message = f"{x.shape[along]} slices cannot become {count} tensors"
        raise ValueError(message)
    moved = np.moveaxis(x, along, 0)
    return tuple(moved[i, ...] for i in range(count))


@shape_fn("Unpack")
def unpack_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """For each element of an axis the input without that axis."""
    count, shape = args.node.attr_int("num"), args.shapes[0]
    if shape is None:
        return [None] * count
    axis = axis_index(args.node.attr_int("axis", 0), len(shape))
    merge_dim(shape[axis], count)
    return [(*shape[:axis], *shape[axis + 1 :])] * count


flop_rule("Unpack")(free)


@kernel("Roll")
def roll(node: Node, x: Array, shift: Array, axis: Array) -> Array:
    """x with its elements moved along axes, those that leave coming in at the other end."""
    axes = tuple(axis_of(a, x.ndim) for a in integers(axis))
    return np.roll(x, integers(shift), axes)


shape_fn("Roll")(unchanged)


flop_rule("Roll")(free)
