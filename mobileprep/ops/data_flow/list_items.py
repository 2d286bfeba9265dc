"""Ops on TensorLists and their single elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import scalar
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import scalars_only
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.data_flow.tensor_list import (
    MOST_ELEMENTS,
    bytes_of,
    checked_count,
    list_in,
    new_list,
    shape_of,
)
from mobileprep.ops.dims import merge
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("EmptyTensorList")
def empty_list(node: Node, shape: Array, limit: Array) -> Array:
    """A list without elements."""
    return new_list(node, (), shape, scalar(limit))


@shape_fn("EmptyTensorList")
def tensor_list_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar handle of a list."""
    args.set_handle(args.as_shape(0))
    return [()]


flop_rule("EmptyTensorList")(free)


@kernel("TensorListReserve")
def reserve(node: Node, shape: Array, count: Array) -> Array:
    """A list of elements that are not set."""
    return new_list(node, (None,) * checked_count(scalar(count)), shape)


shape_fn("TensorListReserve")(tensor_list_shape)


flop_rule("TensorListReserve")(free)


@kernel("TensorListResize")
def resize(node: Node, handle: Array, size: Array) -> Array:
    """A list cut off, or made longer by elements that are not set."""
    found, count = list_in(handle), checked_count(scalar(size))
    kept = found.items[:count]
    return found.with_items((*kept, *[None] * (count - len(kept))))


@shape_fn("TensorListResize")
def tensor_list_changed_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The handle of a list of the same elements."""
    args.set_handle(args.handle(0))
    return [()]


flop_rule("TensorListResize")(free)


@kernel("TensorListLength")
def length(node: Node, handle: Array) -> Array:
    """The number of elements."""
    return np.array(len(list_in(handle).items), dtype=np.int32)


shape_fn("TensorListLength")(scalars_only)


flop_rule("TensorListLength")(free)


@kernel("TensorListElementShape")
def element_shape(node: Node, handle: Array) -> Array:
    """What is known of the elements' shape."""
    shape = list_in(handle).shape
    return np.array(-1 if shape is None else shape, dtype=node.attr_dtype("shape_type").numpy)


@shape_fn("TensorListElementShape")
def tensor_list_element_shape_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector with a size for each axis; a scalar, -1, stands for an unknown rank."""
    element = args.handle(0)
    return [None if element is None else (len(element),)]


flop_rule("TensorListElementShape")(free)


@kernel("TensorListSetItem")
def set_item(node: Node, handle: Array, index: Array, value: Array) -> Array:
    """A list with one element replaced; beyond the end only where the node allows it."""
    found, place = list_in(handle), scalar(index)
    items = list(found.items)
    if (
        node.attr_bool("resize_if_index_out_of_bounds", False)
        and len(items) <= place < MOST_ELEMENTS
    ):
        items += [None] * (checked_count(place + 1) - len(items))
    if not 0 <= place < len(items):
        message = f"there is no element {place} among {len(items)}"
        raise IndexError(message)
    old = items[place]
    items[place] = found.checked(value)
    return found.with_items(tuple(items), value.nbytes - bytes_of((old,)))


shape_fn("TensorListSetItem")(tensor_list_changed_shape)


flop_rule("TensorListSetItem")(free)


@kernel("TensorListGetItem")
def get_item(node: Node, handle: Array, index: Array, shape: Array) -> Array:
    """An element."""
    return list_in(handle).item(scalar(index), shape_of(shape))


@shape_fn("TensorListGetItem")
def tensor_list_item_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """An element's shape."""
    return [merge(args.handle(0), args.as_shape(2))]


flop_rule("TensorListGetItem")(free)


@kernel("TensorListPushBack")
def push_back(node: Node, handle: Array, value: Array) -> Array:
    """A list with one element more."""
    found = list_in(handle)
    return found.with_items((*found.items, found.checked(value)), value.nbytes)


shape_fn("TensorListPushBack")(tensor_list_changed_shape)


flop_rule("TensorListPushBack")(free)


@kernel("TensorListPopBack")
def pop_back(node: Node, handle: Array, shape: Array) -> tuple[Array, Array]:
    """A list without its last element, and that element."""
    found = list_in(handle)
    last = found.item(len(found.items) - 1, shape_of(shape))
    return found.with_items(found.items[:-1], -bytes_of(found.items[-1:])), last


@shape_fn("TensorListPopBack")
def tensor_list_pop_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The handle of a list of the same elements, and an element."""
    args.set_handle(args.handle(0))
    return [(), args.handle(0)]


flop_rule("TensorListPopBack")(free)
