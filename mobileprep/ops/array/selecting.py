"""Ops that choose between elements by a condition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import (
    check_broadcast,
    same_type,
)
from mobileprep.ops.common_costs import free
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import (
    UNKNOWN,
    broadcast,
    is_full,
    merge,
)
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("Select")
def select(node: Node, condition: Array, x: Array, y: Array) -> Array:
    """x where the condition holds, else y; a vector condition chooses whole slices."""
    same_type(node, x, y)
    if x.shape != y.shape:
        message = "both branches must have one shape"
        raise ValueError(message)
    if condition.ndim == 0:
        return x if bool(condition) else y
    if condition.shape != x.shape:
        if condition.ndim != 1 or condition.shape[0] != x.shape[0]:
            message = "the condition must have the branches' shape, or an element for each slice"
            raise ValueError(message)
        condition = condition.reshape(-1, *[1] * (x.ndim - 1))
    return np.where(condition, x, y)


@shape_fn("Select")
def select_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape of the branches, which the condition has too unless it is a scalar or a vector."""
    condition, data = args.shapes[0], merge(args.shapes[1], args.shapes[2])
    if condition is not None and data is not None and len(condition) > 1:
        return [merge(condition, data)]
    return [data]


flop_rule("Select")(free)


@shape_fn("RefSelect")
def ref_select_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape of all choices, where each is known and they are one."""
    first, *rest = args.shapes[1:]
    return [first if is_full(first) and all(s == first for s in rest) else None]


@kernel("SelectV2")
def select_v2(node: Node, condition: Array, x: Array, y: Array) -> Array:
    """x where the condition holds, else y, all broadcast."""
    same_type(node, x, y)
    check_broadcast(x, y, condition)
    return np.where(condition, x, y)


@shape_fn("SelectV2")
def select_v2_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Three inputs broadcast to each other."""
    return [broadcast(broadcast(args.shapes[0], args.shapes[1]), args.shapes[2])]


flop_rule("SelectV2")(free)


@kernel("Where")
def where(node: Node, condition: Array) -> Array:
    """The coordinates of elements that are not zero, a row each."""
    if condition.ndim < 1:
        message = "a scalar has no coordinates"
        raise ValueError(message)
    return np.argwhere(condition).astype(np.int64, copy=False)


@shape_fn("Where")
def where_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A row for each element that is true, as long as the input has dimensions."""
    shape = args.shapes[0]
    return [(UNKNOWN, UNKNOWN if shape is None else len(shape))]


flop_rule("Where")(free)
