"""Progress of a build on standard error: a bar on a terminal, otherwise one line per stage.

The output and warnings of a stage are printed together when it ends, even if stages run in
parallel.

It does not use rich: importing rich takes more than a twentieth of the time of a small build, and
its output differs between releases.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TextIO, cast

from mobileprep.building.pipeline.execute import Moment
from mobileprep.cli._shared.telling import warn
from mobileprep.cli._shared.terminal import StatusLine, StreamWrapper, is_terminal
from mobileprep.cli._shared.terminal.waiting import Above, Count

_BAR = 20
# Minimum width for the stage name; the bar is omitted if there is less.
_NAME = 24
# Seconds between redraws, and shortest duration that is shown.
_TICK = 1.0
_CUT = "..."


class Progress:
    """Progress display for the stages of a build.

    Other output is redirected to standard error and printed in complete lines above the bar; output
    of a stage is printed when the stage ends. Standard output is reserved for results.

    Args:
        total: expected number of stages to run; 0 shows no bar.
        expected: durations of stages in seconds when they last ran, where known.
        jobs: maximum number of parallel stages.
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
        """Print a warning of a stage, or of the build if ``task`` is empty."""
        warn(f"{task}: {text}" if task else text)

    def advance(self, task: str, done: int, total: int) -> None:
        """Update the sample count of a stage; called by the thread that runs it."""
        with self._lock:
            first = self._samples.get(task)
            now = time.monotonic()
            # The first batch includes model setup, so the rate is measured from its end.
            since, before = (now, done) if first is None else (first.since, first.before)
            self._samples[task] = Count(done, total, "samples", since, before)

    def listen(self, task: str, moment: Moment) -> None:
        """Record the start or end of a stage; called by the thread that runs it."""
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
            output = self._output.take()
            took = moment if isinstance(moment, str) else f"{moment:.2f} s"
            if self._line is None:
                output += f"{task}  {took}\n"
            elif (note := getattr(self._stream, "note", None)) is not None:
                note(f"{task}  {took}\n")
            self._show(output)
        self._draw()

    @property
    def seconds(self) -> dict[str, float]:
        """Duration of each finished stage in seconds."""
        return dict(self._took)

    def _eta(self, now: float) -> str:
        """Return ``, 12 s left``; empty if unknown or less than a second."""
        elapsed = now - self._began
        if elapsed < _TICK or not self._total:
            return ""
        due = {task: s for task, s in self._expected.items() if task not in self._took}
        if len(due) < self._total - self._done:
            # Some remaining stages have never run: assume the rate so far.
            remaining = elapsed / self._done * (self._total - self._done) if self._done else 0.0
        else:
            ran = sum(min(now - since, due.get(t, 0.0)) for t, since in self._running.items())
            remaining = (sum(due.values()) - ran) / self._jobs
        return f", {remaining:.0f} s left" if remaining >= _TICK else ""

    def _tick(self) -> None:
        while not self._over.wait(_TICK):
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            if self._line is not None:
                self._line.show(self._text(self._line.room))

    def _show(self, lines: str) -> None:
        """Write complete lines, above the bar if there is one."""
        with self._lock:
            if self._line is None:
                self._stream.write(lines)
            elif lines:
                self._line.above(lines)

    def _text(self, room: int) -> str:
        """Return ``[=====>    ]  26% 5/19 digits/07-round_weights 12 s``, shortened to fit."""
        done = min(self._done, self._total)
        count = f"{100 * done // self._total:3d}% {done}/{self._total}"
        bar = f"[{_filled(done, self._total)}] {count}"
        head = bar if room >= len(bar) + _NAME else count
        now = time.monotonic()
        oldest = min(self._running.values(), default=now)
        took = f" {now - oldest:.0f} s" if now - oldest >= _TICK else ""
        if took and len(self._samples) == 1:
            took += f" {next(iter(self._samples.values())).text(now)}"
        else:
            took += self._eta(now)
        name = _fitting(", ".join(self._running), room - len(head) - len(took) - 1)
        return f"{head} {name}{took}" if name else head


def _filled(done: int, total: int) -> str:
    """Return a bar of ``_BAR`` ASCII characters."""
    full = _BAR * done // total
    return ("=" * full + ">" * (full < _BAR)).ljust(_BAR)


def _fitting(name: str, room: int) -> str:
    """Return a name, or its end if it is too long, because the end distinguishes stages."""
    if len(name) <= room:
        return name
    return _CUT + name[len(_CUT) - room :] if room > len(_CUT) else ""


class StageOutput:
    """Buffer for the output of threads that run a stage; other output is passed on by line.

    Args:
        show: writes complete lines; must be safe to call from several threads.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        # Lines of the running stage, by thread.
        self._held: dict[int, str] = {}
        self._streams: list[_Stream] = []

    def stream(self, behind: TextIO) -> TextIO:
        """Return a stream that buffers writes and forwards all other attributes to ``behind``."""
        stream = _Stream(behind, self._pass_on)
        self._streams.append(stream)
        return cast(TextIO, stream)

    def begin(self) -> None:
        """Start buffering the output of this thread, which runs a stage."""
        self._held[threading.get_ident()] = ""

    def take(self) -> str:
        """Return the lines of the stage that this thread ran, and stop buffering its output."""
        thread = threading.get_ident()
        for stream in self._streams:
            stream.complete(thread)
        return self._held.pop(thread, "")

    def finish(self) -> None:
        """Pass on all buffered lines, including unfinished ones."""
        for stream in self._streams:
            for thread in stream.unfinished_threads():
                stream.complete(thread)
        for thread in list(self._held):
            self._show(self._held.pop(thread))

    def _pass_on(self, thread: int, lines: str) -> None:
        if thread in self._held:
            self._held[thread] += lines
        else:
            self._show(lines)


class _Stream(StreamWrapper):
    """A stream that buffers text by thread and passes on complete lines."""

    def __init__(self, stream: TextIO, pass_on: Callable[[int, str], None]) -> None:
        super().__init__(stream)
        self._pass_on = pass_on
        # Unfinished line of each thread, so that threads do not write into each other's lines.
        self._unfinished: dict[int, str] = {}

    def write(self, text: str) -> int:
        """Buffer text and pass on complete lines."""
        thread = threading.get_ident()
        lines, end, rest = f"{self._unfinished.pop(thread, '')}{text}".rpartition("\n")
        if rest:
            self._unfinished[thread] = rest
        if end:
            self._pass_on(thread, lines + end)
        return len(text)

    def unfinished_threads(self) -> list[int]:
        """Return the threads with an unfinished line."""
        return list(self._unfinished)

    def complete(self, thread: int) -> None:
        """Write the unfinished line of a thread."""
        text = self._unfinished.pop(thread, "")
        if text:
            self._pass_on(thread, f"{text}\n")
