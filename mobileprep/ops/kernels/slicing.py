"""Kernels that cut tensors apart and read parts of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.kernel import kernel
from mobileprep.ops.kernels._common import axis_of, check_outputs, integers, scalar

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


@kernel("TensorStridedSliceUpdate")
def strided_slice_update(
    node: Node, x: Array, begin: Array, end: Array, strides: Array, value: Array
) -> Array:
    """A copy of x with the part that ``StridedSlice`` would give set to another value."""
    out: Array = x.copy()
    out[strided_index(node, x.ndim, begin, end, strides, x.shape)] = value
    return out


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


@kernel("Split")
def split(node: Node, axis: Array, x: Array) -> tuple[Array, ...]:
    """Parts of equal length along an axis."""
    along, count = axis_of(scalar(axis), x.ndim), node.attr_int("num_split")
    check_outputs(count)
    if x.shape[along] % count:
        message = f"{x.shape[along]} elements cannot be split into {count} equal parts"
        raise ValueError(message)
    return tuple(np.split(x, count, axis=along))


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


@kernel("Roll")
def roll(node: Node, x: Array, shift: Array, axis: Array) -> Array:
    """x with its elements moved along axes, those that leave coming in at the other end."""
    axes = tuple(axis_of(a, x.ndim) for a in integers(axis))
    return np.roll(x, integers(shift), axes)
