"""Work and matrix products shared between processors.

Free threads take parts, and each calls BLAS on one processor. BLAS's own threads wait for each
other in every call, which is slow on a busy machine.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

import numpy as np

from mobileprep.graph.tensor import Array

T = TypeVar("T")

_MOST_THREADS = 16

LEAST_WORK: Final = 4 << 20
"""Number of multiplications for which waking a thread pays off."""

# Smallest number of multiplications for each number of parts. BLAS packs one operand again for
# each part, so small parts cost more than further processors save.
_PARTS: Final = ((512 << 20, 8), (64 << 20, 4), (2 * LEAST_WORK, 2))


class _Share(Generic[T]):
    """The parts of one computation, for any thread.

    Waking a thread of an executor and waiting for its future would take twice as long, which slows
    down networks with many short steps.

    Args:
        work: the function to call for every part.
        parts: the parts.
    """

    def __init__(self, work: Callable[[T], None], parts: Iterable[T]) -> None:
        self._work = work
        self.pending = deque(parts)
        self._lock = threading.Lock()
        self._active = 0
        self._closed = False
        self._idle = threading.Lock()
        self._error: BaseException | None = None

    def help(self) -> None:
        """Process parts in a helper thread."""
        with self._lock:
            if self._closed:
                return
            self._active += 1
        try:
            self.drain()
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            self._error = error
        with self._lock:
            self._active -= 1
            if self._closed and not self._active:
                self._idle.release()

    def drain(self) -> None:
        """Process parts until none remain."""
        pending = self.pending
        while pending:
            try:
                part = pending.popleft()
            except IndexError:
                return
            try:
                self._work(part)
            except BaseException:
                # The remaining parts are useless after an error.
                pending.clear()
                raise

    def close(self) -> None:
        """Wait for active helpers; later ones find no parts."""
        self._idle.acquire()
        with self._lock:
            self._closed = True
            waiting = self._active > 0
        if waiting:
            self._idle.acquire()
        # A thread that has not started yet would keep the tensors that the work references alive.
        del self._work, self.pending
        if self._error is not None:
            raise self._error


def _help(shares: SimpleQueue[_Share[Any]]) -> None:
    """Run the loop of a helper thread."""
    with np.errstate(all="ignore"):
        while True:
            shares.get().help()


class _Crew:
    """The helper threads, and their hold on BLAS.

    Args:
        blas: the controller of the BLAS libraries of this process.
    """

    def __init__(self, blas: Any) -> None:  # noqa: ANN401 - threadpoolctl has no types
        self._blas = blas
        counts = [lib["num_threads"] for lib in blas.info() if lib["user_api"] == "blas"]
        # BLAS's own thread count follows the machine or the user's environment.
        self.threads = min(min(counts, default=1), _MOST_THREADS)
        self.shares: SimpleQueue[_Share[Any]] = SimpleQueue()
        for number in range(self.threads - 1):
            name = f"mobileprep-{number}"
            threading.Thread(target=_help, args=(self.shares,), name=name, daemon=True).start()
        # BLAS obeys only the thread that set the limit first, until that thread releases it. Users
        # come from threads of their own, so a single thread sets the limit for all.
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
# Two crews would undo each other's hold on BLAS, and so change the last bits of results.
_recruiting = threading.Lock()
_here = threading.local()


def _forget() -> None:
    """Reset the crew: a forked child has none of its parent's threads."""
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
    """Let ``for_each`` share its parts between processors when called from this thread."""
    crew = _the_crew()
    crew.enter()
    before, _here.crew = getattr(_here, "crew", None), crew
    try:
        yield
    finally:
        _here.crew = before
        crew.leave()


def threads() -> int:
    """Return the number of threads that ``for_each`` would use here."""
    crew: _Crew | None = getattr(_here, "crew", None)
    return 1 if crew is None else crew.threads


def for_each(work: Callable[[T], None], parts: Sequence[T]) -> None:
    """Call a function for every part, in any order; an exception ends it and is raised again."""
    crew: _Crew | None = getattr(_here, "crew", None)
    helpers = 0 if crew is None else min(crew.threads, len(parts)) - 1
    if crew is None or helpers < 1:
        for part in parts:
            work(part)
        return
    share = _Share(work, parts)
    # A nested call would find all threads busy.
    _here.crew = None
    for _ in range(helpers):
        crew.shares.put(share)
    try:
        share.drain()
    finally:
        _here.crew = crew
        share.close()


def parts_of(work: int) -> int:
    """Return the number of parts into which to split some multiplications.

    It does not depend on the number of threads: the last bits of a product depend on the split.
    """
    return next((parts for least, parts in _PARTS if work >= least), 1)


def multiply(x: Array, y: Array, out: Array) -> None:
    """Write the product of two matrices to ``out``, split along its longer side."""
    rows, columns = out.shape
    parts = parts_of(rows * columns * x.shape[1])
    if parts < 2:
        np.matmul(x, y, out=out)
        return
    along_columns = columns > rows
    length = columns if along_columns else rows
    step = -(-length // parts)

    def work(start: int) -> None:
        part = slice(start, start + step)
        if along_columns:
            np.matmul(x, y[:, part], out=out[:, part])
        else:
            np.matmul(x[part], y, out=out[part])

    for_each(work, range(0, length, step))
