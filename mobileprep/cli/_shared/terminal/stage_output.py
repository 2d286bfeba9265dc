"""What stages that run at once write, kept apart: the lines of each come together as it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, TextIO, cast


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
        """Take several texts."""
        self.write("".join(lines))

    def begun(self) -> list[int]:
        """The threads that have begun a line."""
        return list(self._begun)

    def complete(self, thread: int) -> None:
        """Pass on what a thread has begun as a line."""
        text = self._begun.pop(thread, "")
        if text:
            self._pass_on(thread, f"{text}\n")
