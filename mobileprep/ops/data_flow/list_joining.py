"""Ops that make one tensor of a TensorList's elements, and a TensorList of a tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import integers, scalar
from mobileprep.ops.common_costs import free
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.data_flow.elements import joined, stacked
from mobileprep.ops.data_flow.tensor_list import (
    TensorList,
    checked_count,
    element_type,
    list_in,
    merged_shape,
    new_list,
    shape_of,
)
from mobileprep.ops.dims import UNKNOWN, at_least_rank, concatenate, merge
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("TensorListStack")
def stack(node: Node, handle: Array, shape: Array) -> Array:
    """All elements along a new first axis."""
    found, wanted = list_in(handle), node.attr_int("num_elements", -1)
    if wanted not in (-1, len(found.items)):
        message = f"{len(found.items)} elements, and {wanted} are expected"
        raise ValueError(message)
    return _stacked(found, tuple(range(len(found.items))), shape_of(shape))


@shape_fn("TensorListStack")
def tensor_list_stack_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The elements one upon another."""
    count = args.node.attr_int("num_elements", UNKNOWN)
    return [concatenate((count,), merge(args.handle(0), args.as_shape(1)))]


flop_rule("TensorListStack")(free)


def _stacked(found: TensorList, indices: tuple[int, ...], shape: TensorShape) -> Array:
    if not indices:
        return np.zeros((0, *found.full_shape(shape)), dtype=found.dtype)
    return stacked(found.read_all((i, shape) for i in indices))


@kernel("TensorListGather")
def gather(node: Node, handle: Array, indices: Array, shape: Array) -> Array:
    """Some elements along a new first axis."""
    return _stacked(list_in(handle), integers(indices), shape_of(shape))


@shape_fn("TensorListGather")
def tensor_list_gather_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """An element for each index."""
    return [concatenate(args.shapes[1], merge(args.handle(0), args.as_shape(2)))]


flop_rule("TensorListGather")(free)


@kernel("TensorListFromTensor")
def from_tensor(node: Node, x: Array, shape: Array) -> Array:
    """The slices of a tensor along its first axis."""
    if x.ndim < 1:
        message = "a scalar has no slices"
        raise ValueError(message)
    return new_list(node, tuple(np.asarray(part, dtype=x.dtype) for part in x), shape)


@shape_fn("TensorListFromTensor")
def tensor_list_from_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar handle of a list of rows."""
    source = args.shapes[0]
    args.set_handle(merge(None if source is None else source[1:], args.as_shape(1)))
    return [()]


flop_rule("TensorListFromTensor")(free)


@kernel("TensorListScatter", "TensorListScatterV2")
def scatter(
    node: Node, x: Array, indices: Array, shape: Array, count: Array | None = None
) -> Array:
    """A list with the slices of a tensor at some places."""
    places = integers(indices)
    number = -1 if count is None else scalar(count)
    if number == -1:
        number = 1 + max(places, default=-1)
    blank = TensorList((None,) * checked_count(number), element_type(node), shape_of(shape))
    return _scattered(blank, x, places)


@shape_fn("TensorListScatter", "TensorListScatterV2")
def tensor_list_scatter_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The handle of a list of elements of the given shape."""
    args.set_handle(args.as_shape(2))
    return [()]


flop_rule("TensorListScatter", "TensorListScatterV2")(free)


def _scattered(found: TensorList, x: Array, places: tuple[int, ...]) -> Array:
    if x.ndim < 1 or len(x) != len(places):
        message = f"{len(places)} places for a tensor of shape {list(x.shape)}"
        raise ValueError(message)
    items = list(found.items)
    for place, part in zip(places, x, strict=True):
        if not 0 <= place < len(items):
            message = f"there is no element {place} among {len(items)}"
            raise IndexError(message)
        items[place] = found.checked(np.asarray(part, dtype=x.dtype))
    return found.with_items(tuple(items))


@kernel("TensorListScatterIntoExistingList")
def scatter_into(node: Node, handle: Array, x: Array, indices: Array) -> Array:
    """A list with slices of a tensor in the place of some elements."""
    return _scattered(list_in(handle), x, integers(indices))


@shape_fn("TensorListScatterIntoExistingList")
def tensor_list_scatter_into_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The handle of a list of the same elements."""
    args.set_handle(args.handle(0))
    return [()]


flop_rule("TensorListScatterIntoExistingList")(free)


@kernel("TensorListConcat", "TensorListConcatV2")
def concat(
    node: Node, handle: Array, shape: Array | None = None, leading: Array | None = None
) -> tuple[Array, Array]:
    """All elements joined along their first axis, and the length of each."""
    found = list_in(handle)
    known = node.attr_shape("element_shape") if shape is None else shape_of(shape)
    rows = () if leading is None else integers(leading)
    parts = found.read_all(
        (i, _with_rows(known, rows[i] if i < len(rows) else -1)) for i in range(len(found.items))
    )
    lengths = np.array([len(p) for p in parts], dtype=np.int64)
    if parts:
        return joined(parts), lengths
    rest = tuple(max(d, 0) for d in (merged_shape(found.shape, known) or ())[1:])
    return np.zeros((0, *rest), dtype=found.dtype), lengths


@shape_fn("TensorListConcat", "TensorListConcatV2")
def tensor_list_concat_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Elements one behind another, and the length of each."""
    first = args.node.op == "TensorListConcat"
    told = args.node.attr_shape("element_shape") if first else args.as_shape(1)
    element = at_least_rank(merge(args.handle(0), told), 1)
    return [None if element is None else (UNKNOWN, *element[1:]), (UNKNOWN,)]


flop_rule("TensorListConcat", "TensorListConcatV2")(free)


def _with_rows(shape: TensorShape, rows: int) -> TensorShape:
    """A shape with its first dimension known, as far as it is."""
    return shape if not shape or rows < 0 else (rows, *shape[1:])


@kernel("TensorListSplit")
def split(node: Node, x: Array, shape: Array, lengths: Array) -> Array:
    """A list of parts of a tensor along its first axis."""
    sizes = integers(lengths)
    if x.ndim < 1 or sum(sizes) != len(x) or any(n < 0 for n in sizes):
        message = f"lengths {list(sizes)} do not fit the shape {list(x.shape)}"
        raise ValueError(message)
    return new_list(node, tuple(np.split(x, np.cumsum(sizes[:-1]))) if sizes else (), shape)


@shape_fn("TensorListSplit")
def tensor_list_split_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The handle of a list of elements of the given shape."""
    args.set_handle(args.as_shape(1))
    return [()]


flop_rule("TensorListSplit")(free)


@kernel("TensorListConcatLists")
def concat_lists(node: Node, a: Array, b: Array) -> Array:
    """The elements of one list and then of another."""
    first, second = list_in(a), list_in(b)
    return first.with_items((*first.items, *second.items), second.nbytes)


@shape_fn("TensorListConcatLists")
def tensor_list_concat_lists_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The handle of a list of elements of which both lists are."""
    args.set_handle(merge(args.handle(0), args.handle(1)))
    return [merge(args.shapes[0], args.shapes[1])]


flop_rule("TensorListConcatLists")(free)
