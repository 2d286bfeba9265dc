"""Ops that join tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import check_bytes
from mobileprep.ops.arrays import (
    axis_of,
    same_type,
    scalar,
)
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import declared_shape
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import (
    UNKNOWN,
    add_dims,
    axis_index,
    merge,
    unknown_dims,
    with_rank,
)
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("ConcatV2")
def concat_v2(node: Node, *inputs: Array) -> Array:
    """Tensors joined along the axis that the last input tells."""
    return _joined(node, inputs[:-1], inputs[-1])


@shape_fn("ConcatV2")
def concat_v2_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The inputs one after another along an axis."""
    return [concatenated_shape(args.shapes[:-1], args.scalar(len(args.shapes) - 1))]


flop_rule("ConcatV2")(free)


def _joined(node: Node, parts: tuple[Array, ...], axis: Array) -> Array:
    same_type(node, *parts)
    check_bytes(sum(x.nbytes for x in parts), "the joined tensor")
    return np.concatenate(parts, axis=axis_of(scalar(axis), parts[0].ndim))


def concatenated_shape(shapes: Sequence[TensorShape], axis: int | None) -> TensorShape:
    """The shape of tensors joined along an axis, which is None where it is not known."""
    known = next((s for s in shapes if s is not None), None)
    if known is None:
        return None
    if axis is None:
        return unknown_dims(len(known))
    axis = axis_index(axis, len(known))
    size = reduce(
        add_dims, (UNKNOWN if s is None else with_rank(s, len(known))[axis] for s in shapes)
    )
    others = (s and (*s[:axis], UNKNOWN, *s[axis + 1 :]) for s in shapes)
    joined = reduce(merge, others, None) or known
    return (*joined[:axis], size, *joined[axis + 1 :])


@kernel("Concat")
def concat(node: Node, axis: Array, *parts: Array) -> Array:
    """Tensors joined along the axis that the first input tells."""
    return _joined(node, parts, axis)


@shape_fn("Concat")
def concat_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The inputs one after another along an axis."""
    return [concatenated_shape(args.shapes[1:], args.scalar(0))]


flop_rule("Concat")(free)


@kernel("ConcatOffset")
def concat_offset(node: Node, axis: Array, *shapes: Array) -> tuple[Array, ...]:
    """Where each part begins in the joined tensor."""
    along = axis_of(scalar(axis), shapes[0].size)
    offsets, position = [], 0
    for dims in shapes:
        offset = np.zeros_like(dims)
        offset[along] = position
        position += dims[along].item()
        offsets.append(offset)
    return tuple(offsets)


@shape_fn("ConcatOffset")
def concat_offset_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector for each of the joined shapes."""
    return args.shapes[1:]


flop_rule("ConcatOffset")(free)


@kernel("Pack")
def pack(node: Node, *inputs: Array) -> Array:
    """Tensors of one shape, stacked along a new axis."""
    same_type(node, *inputs)
    check_bytes(sum(x.nbytes for x in inputs), "the joined tensor")
    return np.stack(inputs, axis=axis_of(node.attr_int("axis", 0), inputs[0].ndim + 1))


@shape_fn("Pack")
def pack_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The inputs' common shape with one more dimension, as long as there are inputs."""
    shape = reduce(merge, args.shapes, None)
    if shape is None:
        return [None]
    axis = axis_index(args.node.attr_int("axis", 0), len(shape) + 1)
    return [(*shape[:axis], len(args.shapes), *shape[axis:])]


shape_fn("ParallelConcat")(declared_shape)


flop_rule("Pack")(free)
