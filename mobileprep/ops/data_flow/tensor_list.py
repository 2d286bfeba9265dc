"""TensorLists as values: changing one makes another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np

from mobileprep.frozen import dataclass
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import check_kept
from mobileprep.ops.arrays import integers
from mobileprep.ops.data_flow.elements import Blanks, check_places
from mobileprep.ops.data_flow.tensor_array import handle_of

MOST_ELEMENTS: Final = 1 << 24
"""More elements than any sequence has; a size comes from a tensor and must not allocate."""


@dataclass(frozen=True, slots=True)
class TensorList:
    """A list of tensors.

    Args:
        items: the elements, None where none was set.
        dtype: their type.
        shape: what is known of their shape.
        limit: how many there may be; negative for any number.
        nbytes: of all elements.
    """

    items: tuple[Array | None, ...]
    dtype: np.dtype[np.generic]
    shape: TensorShape
    limit: int = -1
    nbytes: int = 0

    def item(self, index: int, shape: TensorShape) -> Array:
        """An element; zeros where none was set.

        Args:
            index: its place.
            shape: what else is known of its shape.
        """
        self._check(index)
        value = self.items[index]
        return Blanks(self.dtype).zeros(self.full_shape(shape)) if value is None else value

    def read_all(self, wanted: Iterable[tuple[int, TensorShape]]) -> list[Array]:
        """Several elements, each with what else is known of its shape; not to be written to."""
        blanks, like = Blanks(self.dtype), self._set_shape()
        found = []
        for index, shape in wanted:
            self._check(index)
            value = self.items[index]
            found.append(blanks.zeros(self._full(like, shape)) if value is None else value)
        return found

    def _check(self, index: int) -> None:
        if not 0 <= index < len(self.items):
            message = f"there is no element {index} among {len(self.items)}"
            raise IndexError(message)

    def full_shape(self, shape: TensorShape) -> tuple[int, ...]:
        """The shape of the elements, from all that is known."""
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
        """A handle of a list with other elements; they have so many bytes more, where it is known.

        Raises:
            ValueError: the list cannot hold so many.
            OverBudgetError: they take more memory than is left.
        """
        if len(items) > (MOST_ELEMENTS if self.limit < 0 else self.limit):
            message = f"the list cannot hold {len(items)} elements"
            raise ValueError(message)
        if added is None:
            added = bytes_of(items) - self.nbytes
        check_kept(added, "the elements of a list")
        return handle_of(replace(self, items=items, nbytes=self.nbytes + added))

    def checked(self, value: Array) -> Array:
        """A value that is to become an element."""
        if value.dtype != self.dtype:
            message = f"a list of {self.dtype} cannot hold {value.dtype}"
            raise ValueError(message)
        return value


def bytes_of(items: Iterable[Array | None]) -> int:
    """The memory of elements."""
    return sum(x.nbytes for x in items if x is not None)


def merged_shape(a: TensorShape, b: TensorShape) -> TensorShape:
    """What two shapes say together; where they do not fit each other, the first counts."""
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b):
        return a
    return tuple(x if x >= 0 else y for x, y in zip(a, b, strict=True))


def shape_of(array: Array) -> TensorShape:
    """A shape held by a tensor: a vector, or the scalar -1 for an unknown rank."""
    return None if array.ndim == 0 else integers(array)


def list_in(handle: Array) -> TensorList:
    """The list of a handle.

    Raises:
        TypeError: the handle is of something else.
    """
    found = handle.item() if handle.dtype == object and handle.size == 1 else None
    if not isinstance(found, TensorList):
        message = "the handle is no TensorList"
        raise TypeError(message)
    return found


def element_type(node: Node) -> np.dtype[np.generic]:
    """The type of the elements of a list that a node makes."""
    return node.attr_dtype("element_dtype").numpy or np.dtype(object)


def new_list(node: Node, items: tuple[Array | None, ...], shape: Array, limit: int = -1) -> Array:
    """A handle of a new list with the element type that its node names."""
    kind = element_type(node)
    return handle_of(TensorList(items, kind, shape_of(shape), limit, bytes_of(items)))


def checked_count(count: int) -> int:
    """A number of elements that a list may have.

    Raises:
        ValueError: it is negative, or too many.
        OverBudgetError: it takes more memory than is left.
    """
    check_places(count, MOST_ELEMENTS)
    return count
