"""Show the current activity and its rate on the last line of a terminal after one second."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, NamedTuple, TextIO, cast

from mobileprep.cli._shared.arguments import size_text
from mobileprep.cli._shared.terminal import StatusLine, StreamWrapper, is_terminal
from mobileprep.core import parallel

_TICK: Final = 1.0
# Shorter times do not give a reliable rate.
_MIN_SECONDS: Final = 0.05


class Count(NamedTuple):
    """Progress of some work.

    Args:
        done: amount done.
        total: total amount; 0 if unknown.
        unit: unit of both.
        since: time at which ``before`` was measured, from ``time.monotonic``.
        before: amount done at that time.
    """

    done: float
    total: float
    unit: str
    since: float
    before: float = 0

    def text(self, now: float) -> str:
        """Return ``120/200 samples, 35/s, 2 s left``; only the amount while the rate is unknown."""
        amount = self._amount(self.done)
        if self.total:
            amount += f"/{self._amount(self.total)}"
        if self.unit != "bytes":
            amount += f" {self.unit}"
        seconds = now - self.since
        if self.done <= self.before or seconds <= _MIN_SECONDS:
            return amount
        rate = (self.done - self.before) / seconds
        text = f"{amount}, {self._amount(rate, 0 if rate >= 10 else 1)}/s"
        remaining = max(self.total - self.done, 0)
        return f"{text}, {remaining / rate:.0f} s left" if self.total else text

    def _amount(self, amount: float, decimals: int = 0) -> str:
        return size_text(round(amount)) if self.unit == "bytes" else f"{amount:.{decimals}f}"


class Activities:
    """The activities of a command and their durations."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = ""
        self._count: Count | None = None
        self._seconds: dict[str, float] = {}

    def update(self, what: str, done: float, total: float, unit: str) -> None:
        """Record the progress of an activity; see ``parallel.Listener``."""
        moment = time.monotonic()
        with self._lock:
            if what != self._now:
                self._end(moment)
                self._now, self._count = what, Count(done, total, unit, moment, done)
            elif self._count is not None:
                self._count = self._count._replace(done=done, total=total)

    def seconds(self) -> dict[str, float]:
        """Return the duration of each activity so far."""
        with self._lock:
            self._end(time.monotonic())
            self._now, self._count = "", None
            return dict(self._seconds)

    def text(self) -> str:
        """Return ``hashing 1.2/3.4 GB, 480 MB/s, 5 s left, 7 s``; empty between activities."""
        with self._lock:
            now, count = self._now, self._count
        if count is None:
            return ""
        moment = time.monotonic()
        progress = f" {count.text(moment)}" if count.total or count.done else ""
        return f"{now}{progress}, {moment - count.since:.0f} s"

    def _end(self, moment: float) -> None:
        if self._count is not None:
            took = moment - self._count.since
            self._seconds[self._now] = self._seconds.get(self._now, 0.0) + took


@contextmanager
def waiting(activities: Activities) -> Iterator[None]:
    """Show long activities if standard error is a terminal."""
    stream = sys.stderr
    with parallel.listening(activities.update):
        if not is_terminal(stream):
            yield
            return
        line = StatusLine(stream)
        shown = _Shown(line, activities)
        with contextlib.ExitStack() as streams:
            streams.callback(shown.end)
            streams.enter_context(contextlib.redirect_stderr(shown.stream(stream)))
            if is_terminal(sys.stdout):
                streams.enter_context(contextlib.redirect_stdout(shown.stream(sys.stdout)))
            yield


class _Shown:
    """A status line that appears after a second and is erased before other output."""

    def __init__(self, line: StatusLine, activities: Activities) -> None:
        self._line = line
        self._activities = activities
        self._lock = threading.RLock()
        self._is_left = False
        self._over = threading.Event()
        self._clock = threading.Thread(target=self._tick, name="waiting", daemon=True)
        self._clock.start()

    def stream(self, behind: TextIO) -> TextIO:
        return cast(TextIO, Above(behind, self._line, self._lock, self.leave))

    def end(self) -> None:
        self._over.set()
        self._clock.join()
        self._line.erase()

    def leave(self) -> None:
        """Stop showing the status line, because other code uses the last line."""
        with self._lock:
            self._line.erase()
            self._is_left = True

    def _tick(self) -> None:
        while not self._over.wait(_TICK):
            with self._lock:
                if not self._is_left:
                    self._line.show(self._activities.text())


class Above(StreamWrapper):
    """A stream that erases the status line before it writes.

    Args:
        stream: the underlying stream.
        line: the status line.
        lock: held while either is written.
        leave: stops the status line.
    """

    def __init__(
        self,
        stream: TextIO,
        line: StatusLine,
        lock: AbstractContextManager[bool],
        leave: Callable[[], None],
    ) -> None:
        super().__init__(stream)
        self._line = line
        self._lock = lock
        self.leave = leave

    def write(self, text: str) -> int:
        with self._lock:
            self._line.erase()
            return self._stream.write(text)
