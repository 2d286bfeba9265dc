"""Work on files that other threads can share: hashing, writing and waiting let them run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mobileprep.processors import cores

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def at_once(
    do: Callable[[_Item], _Result], items: Sequence[_Item], threads: int | None = None
) -> list[_Result]:
    """What ``do`` gives for each item, in order; where it raises, what has not begun is left out.

    Args:
        do: may be called in any thread.
        items: those that take longest come first, best.
        threads: how many to work on at once, by default as many as there are processors.
    """
    most = min(len(items), threads or cores())
    if most < 2:
        return [do(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor  # costs start-up time

    pool = ThreadPoolExecutor(most, thread_name_prefix="mobileprep-files")
    try:
        return list(pool.map(do, items))
    finally:
        pool.shutdown(cancel_futures=True)
