"""How long one entry may take: some seconds, and more only for bytes that keep coming."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

CONNECT_SECONDS: Final = 3.0
SILENT_SECONDS: Final = 10.0
# Below this a stage is usually run again in less time than its outputs take to arrive.
_LEAST_RATE: Final = 256 << 10


def seconds_for(size: int) -> float:
    """How long so many bytes of an entry may be on their way."""
    return size / _LEAST_RATE


class TimeLeft:
    """The time that an exchange has left.

    It has ``SILENT_SECONDS``, and a second more for each 256 KiB of an entry that went over the
    line. Headers, and whatever else a server may go on with for ever, bring no time.

    Args:
        at_most: seconds to begin with, where the caller has less than ``SILENT_SECONDS``.
    """

    def __init__(self, at_most: float = math.inf) -> None:
        self._until = time.monotonic() + min(SILENT_SECONDS, at_most)

    def moved(self, size: int) -> None:
        """Note that bytes of the entry went over the line."""
        self._until += seconds_for(size)

    def left(self) -> float:
        """How many seconds the rest may take.

        Raises:
            TimeoutError: none.
        """
        left = self._until - time.monotonic()
        if left <= 0:
            message = "too slow"
            raise TimeoutError(message)
        return left

    def bytes_due(self) -> int:
        """How many bytes of the entry come in what is left, at the least rate."""
        return max(0, int((self._until - time.monotonic()) * _LEAST_RATE))

    def wait(self) -> float:
        """How many seconds the next bytes may take; raises what ``left`` does."""
        return min(self.left(), SILENT_SECONDS)


def within(seconds: float, work: Callable[[], T]) -> T:
    """What a call gives that has no time-out of its own, such as one that looks a name up.

    A call that takes longer goes on in a thread that holds nothing up.

    Raises:
        TimeoutError: it takes longer.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        message = "too slow"
        raise TimeoutError(message)
    return results[0]
