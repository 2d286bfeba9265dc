"""Work that threads can share: hashing, arithmetic, writing and waiting let others run."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from mobileprep.processors import cores

if TYPE_CHECKING:
    from concurrent.futures import Future

MOST_THREADS: Final = 256
"""More at once bring nothing, and systems do not start any number."""

_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)
_Result = TypeVar("_Result")


def at_once(
    do: Callable[[_Item], _Result], items: Sequence[_Item], threads: int | None = None
) -> list[_Result]:
    """What ``do`` gives for each item, in order; where it raises, what has not begun is left out.

    An interrupt does not wait for what has begun.

    Args:
        do: may be called in any thread.
        items: those that take longest come first, best.
        threads: how many to work on at once, by default as many as there are processors.
    """
    most = min(len(items), threads or cores(), MOST_THREADS)
    if most < 2:
        return [do(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor  # costs start-up time

    pool = ThreadPoolExecutor(most, thread_name_prefix="mobileprep-files")
    is_awaited = True
    try:
        return list(pool.map(do, items))
    except KeyboardInterrupt:
        is_awaited = False  # what has begun may wait for another machine
        raise
    finally:
        pool.shutdown(is_awaited, cancel_futures=True)


def begun(do: Callable[[_Key], _Result], items: Iterable[_Key]) -> dict[_Key, Future[_Result]]:
    """Begin with some work in the background, on all processors; what will come of each item.

    A process that ends does not wait for it.

    Args:
        do: called in other threads, for the items in their order.
        items: no two alike.
    """
    from concurrent.futures import Future  # costs start-up time

    found: dict[_Key, Future[_Result]] = {item: Future() for item in items}
    todo = deque(found.items())

    def work() -> None:
        while todo:
            try:
                item, future = todo.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                future.set_result(do(item))
            except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
                future.set_exception(error)

    for _ in range(min(len(found), cores())):
        threading.Thread(target=work, name="mobileprep-ahead", daemon=True).start()
    return found
