"""The shape of a strided slice of a tensor whose shape and bounds are known in part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ops.dims import UNKNOWN, ShapeConflictError
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn

Bounds = tuple[int | None, int | None]


@shape_fn("StridedSlice")
def strided_slice(args: ShapeArgs) -> Sequence[TensorShape]:
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
