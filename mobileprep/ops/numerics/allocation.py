"""Memory limits of tensors, checked before allocation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from mobileprep.core.limits import memory_limit
from mobileprep.graph.tensor import Array

# A larger tensor in a graph for a mobile device is a mistake or an attack.
MAX_OUTPUT_BYTES = 1 << 32


MAX_AXES = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
"""The maximum number of dimensions of numpy's arrays."""


class OverBudgetError(ValueError):
    """An allocation exceeds the memory limit of a run."""


class Holdings:
    """The memory that a run holds, and its limit.

    Args:
        values: the tensors that the run holds; other objects are ignored. The run changes this
            list.
        limit: maximum bytes.
        outer: the memory that the caller holds.
    """

    __slots__ = ("_counted", "_limit", "_values", "made", "outer")

    def __init__(self, values: Sequence[object], limit: int, outer: Holdings | None = None) -> None:
        self._values = values
        self._limit = limit
        self.outer = outer
        self._counted = 0
        self.made = 0
        """Bytes allocated since the tensors were last counted; the run adds to it."""

    def remaining(self, size: int) -> int:
        """Return the remaining bytes; counted exactly only if ``size`` would not fit."""
        if self.made + self._counted + size > self._limit:
            self._counted, self.made = self._own_bytes(), 0
        return max(self._limit - self._counted - self.made, 0)

    def owners(self) -> dict[int, Array]:
        """Return the arrays that own the memory that the run holds, by identity."""
        return {id(owner): owner for x in self._values if (owner := _owner(x)) is not None}

    def _own_bytes(self) -> int:
        """Return the memory of arrays that the caller does not hold and count, too.

        Memory that several views share counts once; mapped files do not count.
        """
        own = self.owners()
        outer = self.outer
        while outer is not None and own:
            for shared in own.keys() & outer.owners().keys():
                del own[shared]
            outer = outer.outer
        return sum(map(_own_bytes, own.values()))


_current: ContextVar[Holdings | None] = ContextVar("holdings", default=None)


@contextmanager
def holding(values: Sequence[object]) -> Iterator[Holdings]:
    """Count the memory that a run holds, within the rest of the caller's limit."""
    held = Holdings(values, memory_left(MAX_OUTPUT_BYTES), _current.get())
    token = _current.set(held)
    try:
        yield held
    finally:
        _current.reset(token)


@contextmanager
def at_most(limit: int) -> Iterator[None]:
    """Lower the memory limit inside the block."""
    token = _current.set(Holdings((), min(limit, memory_left(limit)), _current.get()))
    try:
        yield
    finally:
        _current.reset(token)


def memory_left(size: int) -> int:
    """Return the bytes that tensors may still take; not counted exactly if ``size`` fits."""
    held = _current.get()
    return memory_limit() if held is None else held.remaining(size)


def check_kept(count: int, what: str) -> None:
    """Count memory that a list keeps beyond the run; check it like ``check_bytes``."""
    held = _current.get()
    while held is not None:
        held.made += count
        held = held.outer
    check_bytes(count, what)


def check_bytes(count: int, what: str) -> None:
    """Raise an error for an allocation that exceeds the remaining memory.

    Args:
        count: its bytes.
        what: for the message, such as "a tensor of shape [2]".

    Raises:
        OverBudgetError: the memory limit of the run is exceeded.
    """
    check_total(count, what, MAX_OUTPUT_BYTES)


def check_total(count: int, what: str, most: int | None = None) -> None:
    """Check several tensors together, like ``check_bytes``, without the limit for a single one.

    Args:
        count: their bytes.
        what: for the message.
        most: an additional limit in bytes.
    """
    remaining = memory_left(count)
    remaining = remaining if most is None else min(remaining, most)
    if count > remaining:
        message = (
            f"{what} takes {count:,} bytes, and {remaining:,} remain of the memory limit of a run"
        )
        raise OverBudgetError(message)


def check_allocation(shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Raise an error for invalid shapes, and for tensors over the device or memory limit."""
    if any(d < 0 for d in shape):
        message = f"{list(shape)} is not a shape"
        raise ValueError(message)
    if len(shape) > MAX_AXES:
        message = f"a tensor of {len(shape)} axes; numpy's arrays have at most {MAX_AXES}"
        raise ValueError(message)
    count = math.prod(shape) * dtype.itemsize
    if count > MAX_OUTPUT_BYTES:
        message = f"a tensor of shape {list(shape)} passes {MAX_OUTPUT_BYTES} bytes"
        raise ValueError(message)
    check_bytes(count, f"a tensor of shape {list(shape)}")


def allocated(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Check a shape and allocate an uninitialized array."""
    check_allocation(shape, dtype)
    return np.empty(tuple(shape), dtype)


def _held_bytes(element: object) -> int:
    """Return the memory of an element: a string, or a list of tensors with its own ``nbytes``."""
    return len(element) if isinstance(element, bytes) else getattr(element, "nbytes", 0)


def _owner(value: object) -> Array | None:
    while isinstance(value, np.ndarray) and value.base is not None:
        value = value.base
    return value if isinstance(value, np.ndarray) else None


def _own_bytes(array: Array) -> int:
    if array.dtype != object:
        return array.nbytes
    return array.nbytes + sum(map(_held_bytes, array.ravel()))
