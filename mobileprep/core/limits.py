"""Limits of a graph run: memory for tensors, loop iterations, and arithmetic."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np

MEMORY_VARIABLE: Final = "MOBILEPREP_MEMORY"
ITERATIONS_VARIABLE: Final = "MOBILEPREP_MAX_ITERATIONS"
FLOPS_VARIABLE: Final = "MOBILEPREP_MAX_FLOPS"
DEFAULT_ITERATIONS: Final = 250_000
"""Default limit for all loops of a run together: some seconds of the shortest iterations."""
DEFAULT_FLOPS: Final = 20 * 10**12
"""Default limit for a run, which has a single batch: minutes."""
# Memory limits of containers in both versions of Linux control groups.
CONTAINER_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_SHARE: Final = 0.5
_UNKNOWN_MACHINE: Final = 8 << 30


class _Limits:
    """The limits of this process, shared by all of its runs."""

    memory: int | None = None
    recipe: int | None = None
    shares: int = 1
    iterations: int = DEFAULT_ITERATIONS
    flops: int = DEFAULT_FLOPS


def memory_limit() -> int:
    """Return the memory limit for the tensors of a run in bytes [default: half of the memory].

    Parallel runs share the limit.
    """
    said = _Limits.recipe if _Limits.memory is None else _Limits.memory
    return (int(machine_memory() * _SHARE) if said is None else said) // _Limits.shares


@contextmanager
def shared_memory(shares: int, recipes: Iterable[int | None] = ()) -> Iterator[None]:
    """Divide the memory limit among parallel runs inside the block.

    All shares have the same size, so that results do not depend on other runs, and no run waits for
    memory while it holds some.

    Args:
        shares: number of parallel runs.
        recipes: memory limits of recipes in bytes; the smallest one applies, unless the command
            line or the environment sets another one.
    """
    before = _Limits.recipe, _Limits.shares
    _Limits.recipe = min((r for r in recipes if r is not None), default=None)
    _Limits.shares = max(shares, 1)
    try:
        yield
    finally:
        _Limits.recipe, _Limits.shares = before


def iteration_limit() -> int:
    """Return the maximum number of iterations of all loops of a run together."""
    return _Limits.iterations


def flop_limit() -> int:
    """Return the maximum number of operations of a run."""
    return _Limits.flops


def set_limits(
    *,
    memory: int | None = None,
    iterations: int = DEFAULT_ITERATIONS,
    flops: int = DEFAULT_FLOPS,
) -> None:
    """Set the limits of runs in this process.

    Args:
        memory: bytes for the tensors of a run; None for half of the machine's memory.
    """
    _Limits.memory, _Limits.iterations, _Limits.flops = memory, iterations, flops


@lru_cache(maxsize=1)
def machine_memory() -> int:
    """Return the memory that this process may use in bytes, which a container can limit."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Not available on Windows.
        whole = _UNKNOWN_MACHINE
    limits = (_limit_in(path) for path in CONTAINER_LIMITS)
    return min([whole, *(x for x in limits if x)])


def _limit_in(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


STEP: Final = 1 << 16
"""Number of operations that take as long as a numpy call on a small array."""
# There is no BLAS for integer matrices.
_INTEGER_PRODUCTS: Final = 32


class OverWorkError(ValueError):
    """A run exceeds the limit for arithmetic."""


class _Work:
    """The operations that a run has done, and its limit."""

    __slots__ = ("done", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.done = 0


_current: ContextVar[_Work | None] = ContextVar("work", default=None)


@contextmanager
def working(limit: int) -> Iterator[None]:
    """Count operations inside the block, up to a limit."""
    token = _current.set(_Work(limit))
    try:
        yield
    finally:
        _current.reset(token)


def spend(operations: float, what: str = "it") -> None:
    """Count operations before they are executed.

    Raises:
        OverWorkError: if they exceed the limit.
    """
    work = _current.get()
    if work is None:
        return
    if work.done + operations > work.limit:
        remaining = max(work.limit - work.done, 0)
        message = (
            f"{what} takes {_format_flops(operations)}, "
            f"and {_format_flops(remaining)} remain of the limit for a run"
        )
        raise OverWorkError(message)
    work.done += int(operations)


def spend_products(count: float, dtype: np.dtype[Any]) -> None:
    """Count multiply-add operations of matrix products.

    Raises:
        OverWorkError: if they exceed the limit.
    """
    spend(2 * count * (_INTEGER_PRODUCTS if dtype.kind in "iub" else 1))


def _format_flops(operations: float) -> str:
    for unit, name in ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")):
        if operations >= unit:
            return f"{operations / unit:,.1f} {name}"
    return f"{operations:,.0f} FLOP"
