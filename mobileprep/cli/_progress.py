"""Progress of a build on the standard error stream: a bar on a terminal, else a line a stage.

It is drawn without a library: rich takes longer to import than a twentieth of a small build, and
what it writes to a terminal differs from release to release.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TextIO, cast

from mobileprep.cli._terminal import StatusLine, is_terminal

_BAR = 20
# Characters of a stage's name that are worth more than the bar.
_NAME = 24
# Seconds between two looks at the clock, and after which a stage's time is shown.
_TICK = 1.0
_CUT = "..."


class Progress:
    """Tells of stages as they run.

    What other code prints meanwhile goes to the standard error stream, in whole lines above the
    bar: the standard output is for results.

    Args:
        total: how many stages are expected to run; 0 shows nothing.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._running: dict[str, float] = {}
        # Of the thread itself too: a warning may be told while the bar is being drawn.
        self._lock = threading.RLock()
        self._line: StatusLine | None = None
        self._over = threading.Event()
        self._clock = threading.Thread(target=self._tick, name="progress", daemon=True)
        self._streams = contextlib.ExitStack()

    def __enter__(self) -> Progress:
        error_stream = sys.stderr
        if not self._total or not is_terminal(error_stream):
            self._streams.enter_context(contextlib.redirect_stdout(error_stream))
            return self
        self._line = StatusLine(error_stream)
        for redirect in (contextlib.redirect_stdout, contextlib.redirect_stderr):
            above = _Above(error_stream, self._above)
            self._streams.callback(above.finish)
            self._streams.enter_context(redirect(cast(TextIO, above)))
        self._draw()
        self._clock.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._streams.close()
        if self._line is not None:
            self._over.set()
            self._clock.join()
            self._line.erase()

    def warn(self, task: str, text: str) -> None:
        """A stage has something to say before it does its work."""
        print(f"mobileprep: warning: {task}: {text}", file=sys.stderr)

    def listen(self, task: str, seconds: float | None) -> None:
        """A stage has started, or is done after some seconds."""
        with self._lock:
            if seconds is None:
                self._running[task] = time.monotonic()
            else:
                self._running.pop(task, None)
                self._done += 1
        if self._line is not None:
            self._draw()
        elif seconds is not None:
            print(f"{task}  {seconds:.2f} s", file=sys.stderr)

    def _tick(self) -> None:
        while not self._over.wait(_TICK):
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            if self._line is not None:
                self._line.show(self._text(self._line.room))

    def _above(self, lines: str) -> None:
        with self._lock:
            if self._line is not None:
                self._line.above(lines)

    def _text(self, room: int) -> str:
        """``[=====>    ]  26% 5/19 digits/07-round_weights 12 s``, or what of it fits."""
        done = min(self._done, self._total)
        count = f"{100 * done // self._total:3d}% {done}/{self._total}"
        bar = f"[{_filled(done, self._total)}] {count}"
        head = bar if room >= len(bar) + _NAME else count
        now = time.monotonic()
        oldest = min(self._running.values(), default=now)
        took = f" {now - oldest:.0f} s" if now - oldest >= _TICK else ""
        name = _fitting(", ".join(self._running), room - len(head) - len(took) - 1)
        return f"{head} {name}{took}" if name else head


class _Above:
    """A stream whose whole lines go above the bar; all else is that of the stream behind it."""

    def __init__(self, stream: TextIO, above: Callable[[str], None]) -> None:
        self._stream = stream
        self._above = above
        # What each thread has begun, so that none writes into another's line.
        self._begun: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Take text, and pass on the lines that are complete."""
        thread = threading.get_ident()
        lines, end, rest = f"{self._begun.pop(thread, '')}{text}".rpartition("\n")
        if rest:
            self._begun[thread] = rest
        if end:
            self._above(lines + end)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Take several texts."""
        self.write("".join(lines))

    def finish(self) -> None:
        """Pass on what never became whole lines, as such."""
        for text in self._begun.values():
            self._above(f"{text}\n")
        self._begun.clear()


def _filled(done: int, total: int) -> str:
    """A bar of ``_BAR`` characters, in those that every terminal and encoding has."""
    full = _BAR * done // total
    return ("=" * full + ">" * (full < _BAR)).ljust(_BAR)


def _fitting(name: str, room: int) -> str:
    """A name, or its end where the whole is too long: the end tells stages apart."""
    if len(name) <= room:
        return name
    return _CUT + name[len(_CUT) - room :] if room > len(_CUT) else ""
