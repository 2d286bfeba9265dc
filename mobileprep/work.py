"""A bound on the arithmetic of runs, checked before it is done.

Counted in operations of a matrix product of floats, of which a multiplication and an addition are
two: what takes longer counts for as many as take as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import numpy as np

STEP: Final = 1 << 16
"""Operations that take as long as one call of numpy on little."""
# Matrices of integers are multiplied by no library.
_INTEGER_PRODUCTS: Final = 32


class OverWorkError(ValueError):
    """More arithmetic than a run may do."""


class _Work:
    """What a run has done of what it may."""

    __slots__ = ("done", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.done = 0


_current: ContextVar[_Work | None] = ContextVar("work", default=None)


@contextmanager
def working(limit: int) -> Iterator[None]:
    """Count what is done inside, which may be so many operations; nothing is counted outside."""
    token = _current.set(_Work(limit))
    try:
        yield
    finally:
        _current.reset(token)


def spend(operations: float, what: str = "it") -> None:
    """Count operations that are about to be done.

    Args:
        operations: how many.
        what: for the message, such as "the window".

    Raises:
        OverWorkError: the run would have done more than it may.
    """
    work = _current.get()
    if work is None:
        return
    if work.done + operations > work.limit:
        left = max(work.limit - work.done, 0)
        message = f"{what} takes {_told(operations)}, and {_told(left)} are left of what a run may"
        raise OverWorkError(message)
    work.done += int(operations)


def spend_products(count: float, dtype: np.dtype[Any]) -> None:
    """Count multiplications of matrices' elements, each with its addition; raises as ``spend``."""
    spend(2 * count * (_INTEGER_PRODUCTS if dtype.kind in "iub" else 1))


def _told(operations: float) -> str:
    for unit, name in ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")):
        if operations >= unit:
            return f"{operations / unit:,.1f} {name}"
    return f"{operations:,.0f} FLOP"
