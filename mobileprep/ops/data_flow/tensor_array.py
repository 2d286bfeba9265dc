"""TensorArrays: lists of tensors that loops fill and read in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import (
    check_allocation,
    check_element,
    handle_of,
    integers,
    object_of,
    scalar,
)
from mobileprep.ops.kernel import RunContext, context_kernel, free
from mobileprep.ops.numerics.allocation import check_bytes, check_kept
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    behind_handle,
    concatenate,
    fixed,
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
        check_element(index, len(self.items))
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
            check_element(index, len(self.items))
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


def _array(handle: Array) -> TensorArray:
    return object_of(handle, TensorArray, "TensorArray")


@context_kernel("TensorArrayV2", "TensorArrayV3", flops=free)
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
def tensor_array_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of the handle and, for the third version, of the flow."""
    if args.node.attr_bool("identical_element_shapes", False):
        args.set_handle(args.node.attr_shape("element_shape"))
    return [(2,), ()] if args.node.op == "TensorArrayV3" else [(2,)]


@context_kernel("TensorArrayWriteV2", "TensorArrayWriteV3", shape=scalars_only, flops=free)
def write(
    context: RunContext, node: Node, handle: Array, index: Array, value: Array, flow: Array
) -> Array:
    """Set an element and return the flow."""
    _array(handle).write(scalar(index), value)
    return flow


@context_kernel("TensorArrayReadV2", "TensorArrayReadV3", shape=behind_handle, flops=free)
def read(context: RunContext, node: Node, handle: Array, index: Array, flow: Array) -> Array:
    """Read an element."""
    return _array(handle).read(scalar(index))


@context_kernel("TensorArrayGatherV2", "TensorArrayGatherV3", flops=free)
def gather(context: RunContext, node: Node, handle: Array, indices: Array, flow: Array) -> Array:
    """Stack elements along a new first axis."""
    return _array(handle).stacked(integers(indices), node.attr_shape("element_shape"))


@shape_fn("TensorArrayGatherV2", "TensorArrayGatherV3")
def tensor_array_gather_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of the stacked elements."""
    count = with_rank(args.shapes[1], 1)
    element = args.handle(0)
    if element is None:
        element = args.node.attr_shape("element_shape")
    return [concatenate(count, element)]


@context_kernel("TensorArrayScatterV2", "TensorArrayScatterV3", shape=scalars_only, flops=free)
def scatter(
    context: RunContext, node: Node, handle: Array, indices: Array, value: Array, flow: Array
) -> Array:
    """Set slices of a tensor as elements and return the flow."""
    array = _array(handle)
    for place, item in slices_at(integers(indices), value):
        array.write(place, item)
    return flow


@context_kernel(
    "TensorArrayConcatV2", "TensorArrayConcatV3", shape=fixed(None, (UNKNOWN,)), flops=free
)
def concat(context: RunContext, node: Node, handle: Array, flow: Array) -> tuple[Array, Array]:
    """Concatenate all elements along their first axis; return also the length of each."""
    array = _array(handle)
    items = array.read_all(range(len(array.items)))
    if any(x.ndim < 1 for x in items):
        message = "scalars cannot be joined"
        raise ValueError(message)
    lengths = np.array([len(x) for x in items], dtype=np.int64)
    return array.joined(node.attr_shape("element_shape_except0")), lengths


@context_kernel("TensorArraySplitV2", "TensorArraySplitV3", shape=scalars_only, flops=free)
def split(
    context: RunContext, node: Node, handle: Array, value: Array, lengths: Array, flow: Array
) -> Array:
    """Split a tensor along its first axis into elements and return the flow."""
    array = _array(handle)
    for place, part in enumerate(split_rows(value, integers(lengths))):
        array.write(place, part)
    return flow


@context_kernel("TensorArraySizeV2", "TensorArraySizeV3", shape=scalars_only, flops=free)
def size(context: RunContext, node: Node, handle: Array, flow: Array) -> Array:
    """Return the number of elements."""
    return np.array(len(_array(handle).items), dtype=np.int32)


@context_kernel("TensorArrayCloseV2", "TensorArrayCloseV3", shape=no_outputs, flops=free)
def close(context: RunContext, node: Node, handle: Array) -> tuple[Array, ...]:
    """Do nothing; the list is freed with its last handle."""
    return ()


shape_fn("TensorArrayGradV3")(fixed((2,), ()))


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


def slices_at(places: Sequence[int], x: Array) -> Iterator[tuple[int, Array]]:
    """Pair places with the slices of a tensor along its first axis."""
    if x.ndim < 1 or len(places) != len(x):
        message = f"{len(places)} places for a tensor of shape {list(x.shape)}"
        raise ValueError(message)
    return zip(places, (np.asarray(part, dtype=x.dtype) for part in x), strict=True)


def split_rows(x: Array, lengths: Sequence[int]) -> list[Array]:
    """Split a tensor along its first axis."""
    if x.ndim < 1 or sum(lengths) != len(x) or any(n < 0 for n in lengths):
        message = f"lengths {list(lengths)} do not fit the shape {list(x.shape)}"
        raise ValueError(message)
    return np.split(x, np.cumsum(lengths[:-1])) if lengths else []
