"""Tensor lists: creation, items, and conversion to and from tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import check_element, handle_of, integers, object_of, scalar
from mobileprep.ops.data_flow.tensor_array import (
    Blanks,
    check_places,
    joined,
    slices_at,
    split_rows,
    stacked,
)
from mobileprep.ops.kernel import free, kernel
from mobileprep.ops.numerics.allocation import check_kept
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    ShapeFn,
    at_least_rank,
    concatenate,
    merge,
    scalars_only,
    shape_fn,
)

MOST_ELEMENTS: Final = 1 << 24
"""More elements than any sequence has; sizes come from tensors and must not allocate too much."""


class TensorList(Struct, frozen=True):
    """A list of tensors.

    Args:
        items: the elements, None for elements that are not set.
        dtype: their type.
        shape: their shape, as far as it is known.
        limit: maximum number of elements; negative for no limit.
        nbytes: size of all elements.
    """

    items: tuple[Array | None, ...]
    dtype: np.dtype[np.generic]
    shape: TensorShape
    limit: int = -1
    nbytes: int = 0

    def item(self, index: int, shape: TensorShape) -> Array:
        """Return an element; zeros if it is not set.

        Args:
            shape: additional knowledge about its shape.
        """
        return self.read_all([(index, shape)])[0]

    def read_all(self, requests: Iterable[tuple[int, TensorShape]]) -> list[Array]:
        """Return several read-only elements, each with its known shape."""
        blanks, like = Blanks(self.dtype), self._set_shape()
        elements = []
        for index, shape in requests:
            check_element(index, len(self.items))
            value = self.items[index]
            elements.append(blanks.zeros(self._full(like, shape)) if value is None else value)
        return elements

    def full_shape(self, shape: TensorShape) -> tuple[int, ...]:
        """Return the shape of the elements, from all available information."""
        return self._full(self._set_shape(), shape)

    def _set_shape(self) -> TensorShape:
        return next((x.shape for x in self.items if x is not None), None)

    def _full(self, like: TensorShape, shape: TensorShape) -> tuple[int, ...]:
        for candidate in (like, merged_shape(self.shape, shape)):
            if candidate is not None and all(d >= 0 for d in candidate):
                return candidate
        message = "the shape of the elements is not known"
        raise ValueError(message)

    def with_items(self, items: tuple[Array | None, ...], added: int | None = None) -> Array:
        """Return a handle of a list with other elements; ``added`` is its growth in bytes."""
        if len(items) > (MOST_ELEMENTS if self.limit < 0 else self.limit):
            message = f"the list cannot hold {len(items)} elements"
            raise ValueError(message)
        if added is None:
            added = bytes_of(items) - self.nbytes
        check_kept(added, "the elements of a list")
        return handle_of(replace(self, items=items, nbytes=self.nbytes + added))

    def checked(self, value: Array) -> Array:
        """Check the type of a new element and return it."""
        if value.dtype != self.dtype:
            message = f"a list of {self.dtype} cannot hold {value.dtype}"
            raise ValueError(message)
        return value


def bytes_of(items: Iterable[Array | None]) -> int:
    """Return the memory of elements."""
    return sum(x.nbytes for x in items if x is not None)


def merged_shape(a: TensorShape, b: TensorShape) -> TensorShape:
    """Combine the known sizes of two shapes; the first wins if they do not match."""
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b):
        return a
    return tuple(x if x >= 0 else y for x, y in zip(a, b, strict=True))


def shape_of(array: Array) -> TensorShape:
    """Read a shape from a tensor: a vector, or the scalar -1 for an unknown rank."""
    return None if array.ndim == 0 else integers(array)


def list_in(handle: Array) -> TensorList:
    """Return the list of a handle."""
    return object_of(handle, TensorList, "TensorList")


def element_type(node: Node) -> np.dtype[np.generic]:
    """Return the element type of the list that a node creates."""
    return node.attr_dtype("element_dtype").numpy or np.dtype(object)


def new_list(node: Node, items: tuple[Array | None, ...], shape: Array, limit: int = -1) -> Array:
    """Create a list with the element type of its node and return its handle."""
    kind = element_type(node)
    return handle_of(TensorList(items, kind, shape_of(shape), limit, bytes_of(items)))


def checked_count(count: int) -> int:
    """Check a number of elements and return it."""
    check_places(count, MOST_ELEMENTS)
    return count


def new_list_shape(index: int) -> ShapeFn:
    """Create the rule of ops that return a list whose elements have the shape in an input."""

    def rule(args: ShapeArgs) -> OutputShapes:
        args.set_handle(args.as_shape(index))
        return [()]

    return rule


def changed_list_shape(args: ShapeArgs) -> OutputShapes:
    """Return the scalar shape of a handle of a list with the same elements."""
    args.set_handle(args.handle(0))
    return [()]


@kernel("EmptyTensorList", shape=new_list_shape(0), flops=free)
def empty_list(node: Node, shape: Array, limit: Array) -> Array:
    """Create a list without elements."""
    return new_list(node, (), shape, scalar(limit))


@kernel("TensorListReserve", shape=new_list_shape(0), flops=free)
def reserve(node: Node, shape: Array, count: Array) -> Array:
    """Create a list of elements that are not set."""
    return new_list(node, (None,) * checked_count(scalar(count)), shape)


@kernel("TensorListResize", shape=changed_list_shape, flops=free)
def resize(node: Node, handle: Array, size: Array) -> Array:
    """Truncate a list, or extend it by elements that are not set."""
    tensor_list, count = list_in(handle), checked_count(scalar(size))
    items = tensor_list.items[:count]
    return tensor_list.with_items((*items, *[None] * (count - len(items))))


@kernel("TensorListLength", shape=scalars_only, flops=free)
def length(node: Node, handle: Array) -> Array:
    """Return the number of elements."""
    return np.array(len(list_in(handle).items), dtype=np.int32)


@kernel("TensorListElementShape", flops=free)
def element_shape(node: Node, handle: Array) -> Array:
    """Return the elements' shape, as far as it is known."""
    shape = list_in(handle).shape
    return np.array(-1 if shape is None else shape, dtype=node.attr_dtype("shape_type").numpy)


@shape_fn("TensorListElementShape")
def tensor_list_element_shape_shape(args: ShapeArgs) -> OutputShapes:
    """Return a vector with a size for each axis; unknown for an unknown rank, which is a scalar."""
    element = args.handle(0)
    return [None if element is None else (len(element),)]


@kernel("TensorListSetItem", shape=changed_list_shape, flops=free)
def set_item(node: Node, handle: Array, index: Array, value: Array) -> Array:
    """Replace one element; beyond the end only if the node allows it."""
    tensor_list, place = list_in(handle), scalar(index)
    items = list(tensor_list.items)
    if (
        node.attr_bool("resize_if_index_out_of_bounds", False)
        and len(items) <= place < MOST_ELEMENTS
    ):
        items += [None] * (checked_count(place + 1) - len(items))
    check_element(place, len(items))
    old = items[place]
    items[place] = tensor_list.checked(value)
    return tensor_list.with_items(tuple(items), value.nbytes - bytes_of((old,)))


@kernel("TensorListGetItem", flops=free)
def get_item(node: Node, handle: Array, index: Array, shape: Array) -> Array:
    """Return an element."""
    return list_in(handle).item(scalar(index), shape_of(shape))


@shape_fn("TensorListGetItem")
def tensor_list_item_shape(args: ShapeArgs) -> OutputShapes:
    """Return an element's shape."""
    return [merge(args.handle(0), args.as_shape(2))]


@kernel("TensorListPushBack", shape=changed_list_shape, flops=free)
def push_back(node: Node, handle: Array, value: Array) -> Array:
    """Append an element."""
    tensor_list = list_in(handle)
    return tensor_list.with_items((*tensor_list.items, tensor_list.checked(value)), value.nbytes)


@kernel("TensorListPopBack", flops=free)
def pop_back(node: Node, handle: Array, shape: Array) -> tuple[Array, Array]:
    """Remove the last element; return the list and that element."""
    tensor_list = list_in(handle)
    last = tensor_list.item(len(tensor_list.items) - 1, shape_of(shape))
    return tensor_list.with_items(tensor_list.items[:-1], -bytes_of(tensor_list.items[-1:])), last


@shape_fn("TensorListPopBack")
def tensor_list_pop_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of a handle of the same elements, and of an element."""
    args.set_handle(args.handle(0))
    return [(), args.handle(0)]


@kernel("TensorListStack", flops=free)
def stack(node: Node, handle: Array, shape: Array) -> Array:
    """Stack all elements along a new first axis."""
    tensor_list, expected = list_in(handle), node.attr_int("num_elements", -1)
    if expected not in (-1, len(tensor_list.items)):
        message = f"{len(tensor_list.items)} elements, and {expected} are expected"
        raise ValueError(message)
    return _stacked(tensor_list, tuple(range(len(tensor_list.items))), shape_of(shape))


@shape_fn("TensorListStack")
def tensor_list_stack_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of the stacked elements."""
    count = args.node.attr_int("num_elements", UNKNOWN)
    return [concatenate((count,), merge(args.handle(0), args.as_shape(1)))]


def _stacked(tensor_list: TensorList, indices: tuple[int, ...], shape: TensorShape) -> Array:
    if not indices:
        return np.zeros((0, *tensor_list.full_shape(shape)), dtype=tensor_list.dtype)
    return stacked(tensor_list.read_all((i, shape) for i in indices))


@kernel("TensorListGather", flops=free)
def gather(node: Node, handle: Array, indices: Array, shape: Array) -> Array:
    """Stack selected elements along a new first axis."""
    return _stacked(list_in(handle), integers(indices), shape_of(shape))


@shape_fn("TensorListGather")
def tensor_list_gather_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of an element for each index."""
    return [concatenate(args.shapes[1], merge(args.handle(0), args.as_shape(2)))]


@kernel("TensorListFromTensor", flops=free)
def from_tensor(node: Node, x: Array, shape: Array) -> Array:
    """Create a list of the slices of a tensor along its first axis."""
    if x.ndim < 1:
        message = "a scalar has no slices"
        raise ValueError(message)
    return new_list(node, tuple(np.asarray(part, dtype=x.dtype) for part in x), shape)


@shape_fn("TensorListFromTensor")
def tensor_list_from_shape(args: ShapeArgs) -> OutputShapes:
    """Return the scalar shape of a handle of a list of rows."""
    source = args.shapes[0]
    args.set_handle(merge(None if source is None else source[1:], args.as_shape(1)))
    return [()]


@kernel("TensorListScatter", "TensorListScatterV2", shape=new_list_shape(2), flops=free)
def scatter(
    node: Node, x: Array, indices: Array, shape: Array, count: Array | None = None
) -> Array:
    """Create a list with the slices of a tensor at given indices."""
    places = integers(indices)
    number = -1 if count is None else scalar(count)
    if number == -1:
        number = 1 + max(places, default=-1)
    blank = TensorList((None,) * checked_count(number), element_type(node), shape_of(shape))
    return _scattered(blank, x, places)


def _scattered(tensor_list: TensorList, x: Array, places: tuple[int, ...]) -> Array:
    items = list(tensor_list.items)
    for place, part in slices_at(places, x):
        check_element(place, len(items))
        items[place] = tensor_list.checked(part)
    return tensor_list.with_items(tuple(items))


@kernel("TensorListScatterIntoExistingList", shape=changed_list_shape, flops=free)
def scatter_into(node: Node, handle: Array, x: Array, indices: Array) -> Array:
    """Replace selected elements of a list by slices of a tensor."""
    return _scattered(list_in(handle), x, integers(indices))


@kernel("TensorListConcat", "TensorListConcatV2", flops=free)
def concat(
    node: Node, handle: Array, shape: Array | None = None, leading: Array | None = None
) -> tuple[Array, Array]:
    """Concatenate all elements along their first axis; return also the length of each."""
    tensor_list = list_in(handle)
    item_shape = node.attr_shape("element_shape") if shape is None else shape_of(shape)
    rows = () if leading is None else integers(leading)
    parts = tensor_list.read_all(
        (i, _with_rows(item_shape, rows[i] if i < len(rows) else -1))
        for i in range(len(tensor_list.items))
    )
    lengths = np.array([len(p) for p in parts], dtype=np.int64)
    if parts:
        return joined(parts), lengths
    rest = tuple(max(d, 0) for d in (merged_shape(tensor_list.shape, item_shape) or ())[1:])
    return np.zeros((0, *rest), dtype=tensor_list.dtype), lengths


@shape_fn("TensorListConcat", "TensorListConcatV2")
def tensor_list_concat_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of the concatenated elements and of their lengths."""
    first = args.node.op == "TensorListConcat"
    item_shape = args.node.attr_shape("element_shape") if first else args.as_shape(1)
    element = at_least_rank(merge(args.handle(0), item_shape), 1)
    return [None if element is None else (UNKNOWN, *element[1:]), (UNKNOWN,)]


def _with_rows(shape: TensorShape, rows: int) -> TensorShape:
    """Set the first dimension of a shape, if it is known."""
    return shape if not shape or rows < 0 else (rows, *shape[1:])


@kernel("TensorListSplit", shape=new_list_shape(1), flops=free)
def split(node: Node, x: Array, shape: Array, lengths: Array) -> Array:
    """Split a tensor along its first axis into a list."""
    return new_list(node, tuple(split_rows(x, integers(lengths))), shape)


@kernel("TensorListConcatLists", flops=free)
def concat_lists(node: Node, a: Array, b: Array) -> Array:
    """Concatenate two lists."""
    first, second = list_in(a), list_in(b)
    return first.with_items((*first.items, *second.items), second.nbytes)


@shape_fn("TensorListConcatLists")
def tensor_list_concat_lists_shape(args: ShapeArgs) -> OutputShapes:
    """Return the scalar shape of a handle of a list with the elements of both lists."""
    args.set_handle(merge(args.handle(0), args.handle(1)))
    return [merge(args.shapes[0], args.shapes[1])]
