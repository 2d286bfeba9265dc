"""Sharing the parts of a computation among the processors.

Parts are taken by whichever thread is free, each calling BLAS on one processor. BLAS's own
threads wait for each other in every call, which on a busy machine costs more than they bring.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

_MOST_THREADS = 16


class _Crew:
    """The threads that help, and the hold on BLAS while they do.

    Args:
        blas: the controller of the BLAS libraries of this process.
    """

    def __init__(self, blas: Any) -> None:  # noqa: ANN401 - threadpoolctl has no types
        self._blas = blas
        told = [lib["num_threads"] for lib in blas.info() if lib["user_api"] == "blas"]
        # What BLAS would use is what the machine has, or what the user's environment allows.
        self.threads = min(min(told, default=1), _MOST_THREADS)
        self.pool = ThreadPoolExecutor(max(self.threads - 1, 1), thread_name_prefix="mobileprep")
        # BLAS obeys only the thread that spoke first, until that thread lets go: users come and
        # go in threads of their own, so one thread speaks for them all.
        self._speaker = ThreadPoolExecutor(1, thread_name_prefix="mobileprep-blas")
        self._lock = threading.Lock()
        self._users = 0
        self._hold = ExitStack()

    def enter(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._speaker.submit(self._take_hold).result()

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._speaker.submit(self._hold.close).result()

    def _take_hold(self) -> None:
        self._hold.enter_context(self._blas.limit(limits=1, user_api="blas"))


_crew: _Crew | None = None
# Two crews would undo each other's hold on BLAS, and with it change the last bits of results.
_recruiting = threading.Lock()
_here = threading.local()


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    global _crew, _recruiting
    _crew, _recruiting = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _the_crew() -> _Crew:
    global _crew
    with _recruiting:
        if _crew is None:
            from threadpoolctl import ThreadpoolController  # slow, and not always needed

            _crew = _Crew(ThreadpoolController())
        return _crew


@contextmanager
def all_processors() -> Iterator[None]:
    """Within, ``for_each`` called from this thread shares its parts among the processors."""
    crew = _the_crew()
    crew.enter()
    before, _here.crew = getattr(_here, "crew", None), crew
    try:
        yield
    finally:
        _here.crew = before
        crew.leave()


def threads() -> int:
    """How many threads ``for_each`` would use here."""
    crew: _Crew | None = getattr(_here, "crew", None)
    return 1 if crew is None else crew.threads


def for_each(work: Callable[[T], None], parts: Iterable[T]) -> None:
    """Do some work for every part, in any order; an exception ends it and is passed on."""
    pending = deque(parts)
    crew: _Crew | None = getattr(_here, "crew", None)
    helpers = 0 if crew is None else min(crew.threads, len(pending)) - 1
    if crew is None or helpers < 1:
        for part in pending:
            work(part)
        return

    def drain() -> None:
        with np.errstate(all="ignore"):
            while pending:
                try:
                    part = pending.popleft()
                except IndexError:
                    return
                try:
                    work(part)
                except BaseException:
                    # What the others would still do is of no use.
                    pending.clear()
                    raise

    # What a part shares out in its turn would find all threads busy.
    _here.crew = None

    futures = [crew.pool.submit(drain) for _ in range(helpers)]
    try:
        drain()
    finally:
        _here.crew = crew
        pending.clear()
        for future in futures:
            # A helper that has not begun by now would find nothing left.
            if not future.cancel():
                future.result()
