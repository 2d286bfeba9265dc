"""What long work is at, for whoever shows it: library code tells it here, and prints nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Listener: TypeAlias = Callable[[str, float, float, str], None]
"""Called, from any thread, with what is being done, how much of it is, of how much in all, 0 where
that is not known, and in which unit: ``bytes``, ``steps``, ``nodes``."""

_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Have a listener told of all long work meanwhile."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(what: str, done: float, total: float, unit: str) -> None:
    """Tell how far some work is; costs next to nothing where nobody listens.

    Args:
        what: the work, in words that stay the same while it goes on.
        done: how much of it is done.
        total: how much there is; 0 where that is not known.
        unit: of both.
    """
    for listener in _listeners:
        listener(what, done, total, unit)


def is_heard() -> bool:
    """Whether anybody listens, for work that would have to count first."""
    return bool(_listeners)


class Tally:
    """Work of one kind that many places and threads do parts of.

    Args:
        what: the work, in words.
        unit: what it is counted in.
    """

    def __init__(self, what: str, unit: str) -> None:
        self._what = what
        self._unit = unit
        self._lock = threading.Lock()
        self._done = 0.0
        self._total = 0.0

    def expect(self, count: float) -> None:
        """So much more is to be done."""
        with self._lock:
            if self._done >= self._total:
                self._done = self._total = 0.0
            self._total += count

    def add(self, count: float) -> None:
        """So much more is done."""
        with self._lock:
            self._done += count
            done, total = self._done, self._total
        if _listeners:
            tell(self._what, done, total if total >= done else 0, self._unit)
