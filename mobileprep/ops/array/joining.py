"""Joining and splitting tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

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
from mobileprep.ops.cost import free
from mobileprep.ops.kernel import kernel
from mobileprep.ops.numerics.allocation import check_bytes
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    add_dims,
    axis_index,
    declared_shape,
    divide_dim,
    merge,
    merge_dim,
    shape_fn,
    unknown_dims,
    with_rank,
)


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
