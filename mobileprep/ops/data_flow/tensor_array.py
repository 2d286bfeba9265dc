"""TensorArrays: lists of tensors that loops fill and read in place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import check_allocation, integers, scalar
from mobileprep.ops.context import RunContext, context_kernel
from mobileprep.ops.cost import flop_rule, free
from mobileprep.ops.numerics.allocation import check_bytes, check_kept
from mobileprep.ops.shape_function import (
    UNKNOWN,
    ShapeArgs,
    concatenate,
    is_full,
    no_outputs,
    scalars_only,
    shape_fn,
    with_rank,
)

# More elements than any sequence has; sizes come from tensors and must not allocate too much.
_MOST = 1 << 24


@dataclass(slots=True)
class TensorArray:
    """A list of tensors.

    Args:
        items: the elements, None for elements that are not written yet.
        dtype: the type of the elements.
        shape: their shape, as far as it is known.
        dynamic: whether a write beyond the end extends the list.
        identical: whether all elements have the same shape.
        nbytes: size of all elements.
    """

    items: list[Array | None]
    dtype: np.dtype[np.generic]
    shape: TensorShape
    dynamic: bool
    identical: bool
    nbytes: int = 0

    def write(self, index: int, value: Array) -> None:
        """Set an element."""
        if value.dtype != self.dtype:
            message = f"an array of {self.dtype} cannot hold {value.dtype}"
            raise ValueError(message)
        if self.dynamic and len(self.items) <= index:
            check_places(index + 1, _MOST)
            self.items += [None] * (index + 1 - len(self.items))
        if not 0 <= index < len(self.items):
            message = f"no element {index} among {len(self.items)}"
            raise IndexError(message)
        old = self.items[index]
        self.nbytes += value.nbytes - (0 if old is None else old.nbytes)
        check_kept(value.nbytes, "an element")
        self.items[index] = value

    def read(self, index: int) -> Array:
        """Return an element; zeros if it was not written and the shape is known.

        An element can be read again, even if the node has ``clear_after_read``.
        """
        value = self.items[index] if 0 <= index < len(self.items) else None
        return self.read_all((index,))[0] if value is None else value

    def read_all(self, indices: Iterable[int]) -> list[Array]:
        """Return several elements, which must not be modified."""
        blanks, like = Blanks(self.dtype), self._like()
        elements = []
        for index in indices:
            if not 0 <= index < len(self.items):
                message = f"no element {index} among {len(self.items)}"
                raise IndexError(message)
            value = self.items[index]
            if value is None and (like is None or any(d < 0 for d in like)):
                message = f"nothing was written to place {index}"
                raise ValueError(message)
            elements.append(blanks.zeros(like or ()) if value is None else value)
        return elements

    def stacked(self, indices: tuple[int, ...], element_shape: TensorShape = None) -> Array:
        """Stack elements along a new first axis; ``element_shape`` is used if there are none."""
        if not indices:
            shape = element_shape if is_full(element_shape) else self._like()
            return np.zeros((0, *_unknown_as_zero(shape)), dtype=self.dtype)
        return stacked(self.read_all(indices))

    def joined(self, element_shape: TensorShape) -> Array:
        """Concatenate all elements along their first axis, which ``element_shape`` omits."""
        if not self.items:
            shape = element_shape if is_full(element_shape) else (self._like() or ())[1:]
            return np.zeros((0, *_unknown_as_zero(shape)), dtype=self.dtype)
        return joined(self.read_all(range(len(self.items))))

    def _like(self) -> TensorShape:
        if not self.identical:
            return self.shape
        return next((x.shape for x in self.items if x is not None), self.shape)


def _unknown_as_zero(shape: TensorShape) -> tuple[int, ...]:
    return tuple(max(d, 0) for d in shape or ())


def handle_of(value: object) -> Array:
    """Wrap an object in an array, the form in which resources and variants are passed."""
    out = np.empty((), dtype=object)
    out[()] = value
    return out


def _array(handle: Array) -> TensorArray:
    value = handle.item() if handle.dtype == object and handle.size == 1 else None
    if not isinstance(value, TensorArray):
        message = "the handle is not a TensorArray"
        raise TypeError(message)
    return value


@context_kernel("TensorArrayV2", "TensorArrayV3")
def tensor_array(context: RunContext, node: Node, size: Array) -> tuple[Array, Array]:
    """Create a list; return its handle and the flow, which orders the operations on it."""
    count = scalar(size)
    dtype = node.attr_dtype("dtype")
    kind = dtype.numpy or np.dtype(object)
    check_places(count, _MOST)
    shape = node.attr_shape("element_shape")
    dynamic = node.attr_bool("dynamic_size", False)
    identical = node.attr_bool("identical_element_shapes", False)
    array = TensorArray([None] * count, kind, shape, dynamic, identical)
    return handle_of(array), np.zeros((), np.float32)


@shape_fn("TensorArrayV2", "TensorArrayV3")
def tensor_array_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return the shapes of the handle and, for the third version, of the flow."""
    if args.node.attr_bool("identical_element_shapes", False):
        args.set_handle(args.node.attr_shape("element_shape"))
    return [(2,), ()] if args.node.op == "TensorArrayV3" else [(2,)]


flop_rule("TensorArrayV2", "TensorArrayV3")(free)


@context_kernel("TensorArrayWriteV2", "TensorArrayWriteV3")
def write(
    context: RunContext, node: Node, handle: Array, index: Array, value: Array, flow: Array
) -> Array:
    """Set an element and return the flow."""
    _array(handle).write(scalar(index), value)
    return flow


shape_fn("TensorArrayWriteV2", "TensorArrayWriteV3")(scalars_only)
flop_rule("TensorArrayWriteV2", "TensorArrayWriteV3")(free)


@context_kernel("TensorArrayReadV2", "TensorArrayReadV3")
def read(context: RunContext, node: Node, handle: Array, index: Array, flow: Array) -> Array:
    """Read an element."""
    return _array(handle).read(scalar(index))


@shape_fn("TensorArrayReadV2", "TensorArrayReadV3")
def tensor_array_read_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return the shape of an element, if all elements have the same."""
    return [args.handle(0)]


flop_rule("TensorArrayReadV2", "TensorArrayReadV3")(free)


@context_kernel("TensorArrayGatherV2", "TensorArrayGatherV3")
def gather(context: RunContext, node: Node, handle: Array, indices: Array, flow: Array) -> Array:
    """Stack elements along a new first axis."""
    return _array(handle).stacked(integers(indices), node.attr_shape("element_shape"))


@shape_fn("TensorArrayGatherV2", "TensorArrayGatherV3")
def tensor_array_gather_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return the shape of the stacked elements."""
    count = with_rank(args.shapes[1], 1)
    element = args.handle(0)
    if element is None:
        element = args.node.attr_shape("element_shape")
    return [concatenate(count, element)]


flop_rule("TensorArrayGatherV2", "TensorArrayGatherV3")(free)


@context_kernel("TensorArrayScatterV2", "TensorArrayScatterV3")
def scatter(
    context: RunContext, node: Node, handle: Array, indices: Array, value: Array, flow: Array
) -> Array:
    """Set slices of a tensor as elements and return the flow."""
    places = integers(indices)
    if value.ndim < 1 or len(places) != len(value):
        message = f"{len(places)} places for a tensor of shape {list(value.shape)}"
        raise ValueError(message)
    array = _array(handle)
    for place, item in zip(places, value, strict=True):
        array.write(place, np.asarray(item, dtype=value.dtype))
    return flow


shape_fn("TensorArrayScatterV2", "TensorArrayScatterV3")(scalars_only)
flop_rule("TensorArrayScatterV2", "TensorArrayScatterV3")(free)


@context_kernel("TensorArrayConcatV2", "TensorArrayConcatV3")
def concat(context: RunContext, node: Node, handle: Array, flow: Array) -> tuple[Array, Array]:
    """Concatenate all elements along their first axis; return also the length of each."""
    array = _array(handle)
    items = array.read_all(range(len(array.items)))
    if any(x.ndim < 1 for x in items):
        message = "scalars cannot be joined"
        raise ValueError(message)
    lengths = np.array([len(x) for x in items], dtype=np.int64)
    return array.joined(node.attr_shape("element_shape_except0")), lengths


@shape_fn("TensorArrayConcatV2", "TensorArrayConcatV3")
def tensor_array_concat_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return the shapes of the concatenated elements and of their lengths."""
    return [None, (UNKNOWN,)]


flop_rule("TensorArrayConcatV2", "TensorArrayConcatV3")(free)


@context_kernel("TensorArraySplitV2", "TensorArraySplitV3")
def split(
    context: RunContext, node: Node, handle: Array, value: Array, lengths: Array, flow: Array
) -> Array:
    """Split a tensor along its first axis into elements and return the flow."""
    array, sizes = _array(handle), integers(lengths)
    if value.ndim < 1 or sum(sizes) != len(value) or any(n < 0 for n in sizes):
        message = f"lengths {list(sizes)} do not fit the shape {list(value.shape)}"
        raise ValueError(message)
    start = 0
    for place, length in enumerate(sizes):
        array.write(place, value[start : start + length])
        start += length
    return flow


shape_fn("TensorArraySplitV2", "TensorArraySplitV3")(scalars_only)
flop_rule("TensorArraySplitV2", "TensorArraySplitV3")(free)


@context_kernel("TensorArraySizeV2", "TensorArraySizeV3")
def size(context: RunContext, node: Node, handle: Array, flow: Array) -> Array:
    """Return the number of elements."""
    return np.array(len(_array(handle).items), dtype=np.int32)


shape_fn("TensorArraySizeV2", "TensorArraySizeV3")(scalars_only)
flop_rule("TensorArraySizeV2", "TensorArraySizeV3")(free)


@context_kernel("TensorArrayCloseV2", "TensorArrayCloseV3")
def close(context: RunContext, node: Node, handle: Array) -> tuple[Array, ...]:
    """Do nothing; the list is freed with its last handle."""
    return ()


shape_fn("TensorArrayCloseV2", "TensorArrayCloseV3")(no_outputs)
flop_rule("TensorArrayCloseV2", "TensorArrayCloseV3")(free)


@shape_fn("TensorArrayGradV3")
def tensor_array_grad_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return the shapes of a handle and its flow."""
    return [(2,), ()]


_POINTER = 8
"""Bytes of a pointer."""


def check_places(count: int, most: int) -> None:
    """Raise an error for a list of invalid length, or over the memory limit."""
    if not 0 <= count <= most:
        message = f"a list of {count} elements"
        raise ValueError(message)
    check_bytes(count * _POINTER, f"a list of {count} elements")


class Blanks:
    """Creates zeros for elements that were never set, one array for each shape.

    Args:
        dtype: the type of the zeros.
    """

    def __init__(self, dtype: np.dtype[np.generic]) -> None:
        self._dtype = dtype
        self._arrays: dict[tuple[int, ...], Array] = {}
        self._bytes = 0

    def zeros(self, shape: tuple[int, ...]) -> Array:
        """Return zeros of a shape, which must not be modified."""
        array = self._arrays.get(shape)
        if array is None:
            check_allocation(shape, self._dtype)
            array = self._arrays[shape] = np.zeros(shape, self._dtype)
            self._bytes += array.nbytes
            check_bytes(self._bytes, "the elements that were not set")
        return array


def stacked(parts: Sequence[Array]) -> Array:
    """Stack elements along a new first axis."""
    check_bytes(sum(x.nbytes for x in parts), "the stacked elements")
    return np.stack(parts)


def joined(parts: Sequence[Array]) -> Array:
    """Concatenate elements along their first axis; raise the same errors as ``stacked``."""
    check_bytes(sum(x.nbytes for x in parts), "the joined elements")
    return np.concatenate(parts)
