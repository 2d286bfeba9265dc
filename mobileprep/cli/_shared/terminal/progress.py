"""Progress of a build on the standard error stream: a bar on a terminal, else a line a stage.

What stages write and warn of comes together as each ends, however many run at once.

It is drawn without a library: rich takes longer to import than a twentieth of a small build, and
what it writes to a terminal differs from release to release.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, TextIO, cast

from mobileprep.building.pipeline.execute import Moment
from mobileprep.cli._shared.telling import warn
from mobileprep.cli._shared.terminal import StatusLine, is_terminal
from mobileprep.cli._shared.terminal.rates import Count
from mobileprep.cli._shared.terminal.waiting import Above

_BAR = 20
# Characters of a stage's name that are worth more than the bar.
_NAME = 24
# Seconds between two looks at the clock, and after which a stage's time is shown.
_TICK = 1.0
_CUT = "..."


class Progress:
    """Shows the progress of stages.

    What other code prints meanwhile goes to the standard error stream, in whole lines above the
    bar, that of a stage as it ends: the standard output is for results.

    Args:
        total: how many stages are expected to run; 0 shows no bar.
        expected: how long stages took when they last ran, in seconds, where that is known.
        jobs: how many may run at once.
    """

    def __init__(
        self, total: int, expected: Mapping[str, float] | None = None, jobs: int = 1
    ) -> None:
        self._total = total
        self._expected = dict(expected or {})
        self._jobs = jobs
        self._began = time.monotonic()
        self._took: dict[str, float] = {}
        self._done = 0
        self._running: dict[str, float] = {}
        self._samples: dict[str, Count] = {}
        # Reentrant, because a warning can be printed while the bar is drawn.
        self._lock = threading.RLock()
        self._stream = sys.stderr
        self._line: StatusLine | None = None
        self._output = StageOutput(self._show)
        self._over = threading.Event()
        self._clock = threading.Thread(target=self._tick, name="progress", daemon=True)
        self._streams = contextlib.ExitStack()

    def __enter__(self) -> Progress:
        if isinstance(self._stream, Above):
            self._stream.leave()
        if self._total and is_terminal(self._stream):
            self._line = StatusLine(self._stream)
        self._streams.callback(self._output.finish)
        for redirect in (contextlib.redirect_stdout, contextlib.redirect_stderr):
            self._streams.enter_context(redirect(self._output.stream(self._stream)))
        if self._line is not None:
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
        """A stage has something to say before it does its work; without a name, the build has."""
        warn(f"{task}: {text}" if task else text)

    def advance(self, task: str, done: int, total: int) -> None:
        """A stage has run some of its samples; called by the thread that runs it."""
        with self._lock:
            first = self._samples.get(task)
            now = time.monotonic()
            # The first batch also has the model set up: the rate counts from its end.
            since, before = (now, done) if first is None else (first.since, first.before)
            self._samples[task] = Count(done, total, "samples", since, before)

    def listen(self, task: str, moment: Moment) -> None:
        """A stage has started, or has ended; called by the thread that runs it."""
        with self._lock:
            if moment is None:
                self._running[task] = time.monotonic()
            else:
                self._running.pop(task, None)
                self._samples.pop(task, None)
                self._done += 1
                self._took[task] = 0.0 if isinstance(moment, str) else moment
        if moment is None:
            self._output.begin()
        else:
            told = self._output.taken()
            took = moment if isinstance(moment, str) else f"{moment:.2f} s"
            if self._line is None:
                told += f"{task}  {took}\n"
            elif (note := getattr(self._stream, "note", None)) is not None:
                note(f"{task}  {took}\n")
            self._show(told)
        self._draw()

    @property
    def seconds(self) -> dict[str, float]:
        """How long each stage took that has ended."""
        return dict(self._took)

    def _left(self, now: float) -> str:
        """`` 12 s left``, where that is known and more than a moment."""
        elapsed = now - self._began
        if elapsed < _TICK or not self._total:
            return ""
        due = {task: s for task, s in self._expected.items() if task not in self._took}
        if len(due) < self._total - self._done:
            # Some remaining stages have never run: assume the rate so far.
            left = elapsed / self._done * (self._total - self._done) if self._done else 0.0
        else:
            ran = sum(min(now - since, due.get(t, 0.0)) for t, since in self._running.items())
            left = (sum(due.values()) - ran) / self._jobs
        return f", {left:.0f} s left" if left >= _TICK else ""

    def _tick(self) -> None:
        while not self._over.wait(_TICK):
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            if self._line is not None:
                self._line.show(self._text(self._line.room))

    def _show(self, lines: str) -> None:
        """Write whole lines, above the bar where there is one."""
        with self._lock:
            if self._line is None:
                self._stream.write(lines)
            elif lines:
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
        if took and len(self._samples) == 1:
            took += f" {next(iter(self._samples.values())).told(now)}"
        else:
            took += self._left(now)
        name = _fitting(", ".join(self._running), room - len(head) - len(took) - 1)
        return f"{head} {name}{took}" if name else head


def _filled(done: int, total: int) -> str:
    """A bar of ``_BAR`` characters, in those that every terminal and encoding has."""
    full = _BAR * done // total
    return ("=" * full + ">" * (full < _BAR)).ljust(_BAR)


def _fitting(name: str, room: int) -> str:
    """Return a name, or its end if it is too long, because the end distinguishes stages."""
    if len(name) <= room:
        return name
    return _CUT + name[len(_CUT) - room :] if room > len(_CUT) else ""


class StageOutput:
    """Holds back what threads write while they run a stage, and passes all else on line by line.

    Args:
        show: writes whole lines; called by one thread at a time or from several.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        # By thread: the lines of the stage that it runs.
        self._held: dict[int, str] = {}
        self._streams: list[_Stream] = []

    def stream(self, behind: TextIO) -> TextIO:
        """A stream to put in another's place; all but what is written to it is the other's."""
        found = _Stream(behind, self._pass_on)
        self._streams.append(found)
        return cast(TextIO, found)

    def begin(self) -> None:
        """This thread runs a stage from now on."""
        self._held[threading.get_ident()] = ""

    def taken(self) -> str:
        """The lines of the stage that this thread has run; what it writes next is none of it."""
        thread = threading.get_ident()
        for stream in self._streams:
            stream.complete(thread)
        return self._held.pop(thread, "")

    def finish(self) -> None:
        """Pass on what is held back, and what never became whole lines, as such."""
        for stream in self._streams:
            for thread in stream.begun():
                stream.complete(thread)
        for thread in list(self._held):
            self._show(self._held.pop(thread))

    def _pass_on(self, thread: int, lines: str) -> None:
        if thread in self._held:
            self._held[thread] += lines
        else:
            self._show(lines)


class _Stream:
    """A stream that takes text by thread and passes on whole lines."""

    def __init__(self, stream: TextIO, pass_on: Callable[[int, str], None]) -> None:
        self._stream = stream
        self._pass_on = pass_on
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
            self._pass_on(thread, lines + end)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several strings."""
        self.write("".join(lines))

    def begun(self) -> list[int]:
        """The threads that have begun a line."""
        return list(self._begun)

    def complete(self, thread: int) -> None:
        """Write the unfinished line of a thread."""
        text = self._begun.pop(thread, "")
        if text:
            self._pass_on(thread, f"{text}\n")
