"""Thread pools, the number of processors, and progress of long work."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future


def cores() -> int:
    """Return the number of processors that this process may use, which a container can limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


MOST_THREADS: Final = 256
"""More threads are not faster, and systems limit their number."""

_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)
_Result = TypeVar("_Result")


def at_once(
    do: Callable[[_Item], _Result], items: Sequence[_Item], threads: int | None = None
) -> list[_Result]:
    """Return the result of ``do`` for each item, in order. After an exception, start no more items.

    An interrupt does not wait for running items.

    Args:
        threads: maximum number of threads. Default: the number of processors.
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
        is_awaited = False  # running items may wait for another machine
        raise
    finally:
        pool.shutdown(is_awaited, cancel_futures=True)


def start_all(do: Callable[[_Key], _Result], items: Iterable[_Key]) -> dict[_Key, Future[_Result]]:
    """Start ``do`` for each item in background threads, and return the futures.

    The process does not wait for the threads when it exits.
    """
    from concurrent.futures import Future  # costs start-up time

    futures: dict[_Key, Future[_Result]] = {item: Future() for item in items}
    todo = deque(futures.items())

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

    for _ in range(min(len(futures), cores())):
        threading.Thread(target=work, name="mobileprep-ahead", daemon=True).start()
    return futures


Listener: TypeAlias = Callable[[str, float, float, str], None]
"""Called from any thread with an activity, the amount done, the total (0 if unknown), and the unit.

Units are ``bytes``, ``steps``, and ``nodes``.
"""

_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Report the progress of long work to a listener inside the block."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def report_progress(what: str, done: float, total: float, unit: str) -> None:
    """Report progress; almost free without a listener.

    Args:
        total: total amount of work; 0 if unknown.
    """
    for listener in _listeners:
        listener(what, done, total, unit)


def is_heard() -> bool:
    """Return whether there is a listener; otherwise, callers need not count their work."""
    return bool(_listeners)


class Tally:
    """Progress of one kind of work that several callers and threads share.

    Args:
        what: description of the work.
        unit: unit of the count.
    """

    def __init__(self, what: str, unit: str) -> None:
        self._what = what
        self._unit = unit
        self._lock = threading.Lock()
        self._done = 0.0
        self._total = 0.0

    def expect(self, count: float) -> None:
        """Increase the total amount of work."""
        with self._lock:
            if self._done >= self._total:
                self._done = self._total = 0.0
            self._total += count

    def add(self, count: float) -> None:
        """Increase the amount of completed work."""
        with self._lock:
            self._done += count
            done, total = self._done, self._total
        if _listeners:
            report_progress(self._what, done, total if total >= done else 0, self._unit)
