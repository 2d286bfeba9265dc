"""Ops that index tensors as Python does, with strides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mobileprep.frozen import dataclass
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import integers
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import (
    UNKNOWN,
    ShapeConflictError,
)
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

Bounds = tuple[int | None, int | None]


Index = int | slice | None


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
        # Of a single element neither mask counts.
        if not -extent <= first < extent or step < 0:
            message = f"there is no element {first} among {extent}"
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


shape_fn("TensorStridedSliceUpdate")(unchanged)


flop_rule("TensorStridedSliceUpdate")(free)
