"""The standard error stream of a command, kept in a file and let through in part."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, TextIO

# What a quiet command still says; a hint and more lines of a message are set in.
_SAID: Final = re.compile(r"mobileprep: (?!note: )")
_MORE: Final = re.compile(r"\s+\S")
# What a log begins with, which is dated and names the version, and what it ends with.
_TIME: Final = rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  "
_HEAD: Final = re.compile(_TIME + rb"mobileprep ")
_END: Final = re.compile(rb"(?:\A|\n)" + _TIME + rb"\d+\.\d\d s\n\Z")


class KeptStream:
    """A stream whose lines go to a log as well, and which lets through what it is asked to.

    What a carriage return writes over is no line of the log.

    Args:
        behind: the stream itself.
        log: takes each whole line, without its end; None for no log.
        is_quiet: let through warnings and errors alone.
    """

    def __init__(
        self, behind: TextIO, log: Callable[[str], None] | None, *, is_quiet: bool
    ) -> None:
        self._behind = behind
        self._log = log
        self._is_quiet = is_quiet
        self._line = ""
        self._is_said = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self._behind, name)

    def isatty(self) -> bool:
        """Whether the stream is a terminal that shows what is written over in place."""
        return not self._is_quiet and self._behind.isatty()

    def write(self, text: str) -> int:
        """Take text; a whole line may go on."""
        for line in self._whole(text):
            if self._log is not None:
                self._log(line)
            if self._is_quiet and self._passes(line):
                self._behind.write(f"{line}\n")
        if not self._is_quiet:
            self._behind.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Take several texts."""
        self.write("".join(lines))

    def note(self, lines: str) -> None:
        """Put lines into the log alone: a terminal shows the same in another way."""
        if self._log is not None:
            for line in lines.splitlines():
                self._log(line)

    def _whole(self, text: str) -> Iterable[str]:
        *whole, self._line = f"{self._line}{text}".split("\n")
        self._line = self._line.rpartition("\r")[2]
        return [line.rpartition("\r")[2] for line in whole]

    def _passes(self, line: str) -> bool:
        self._is_said = bool(_SAID.match(line)) or (self._is_said and bool(_MORE.match(line)))
        return self._is_said


def dated(line: str) -> str:
    """A line with the local time before it."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n"


def is_log(begin: bytes, end: bytes) -> bool:
    """Whether a file that begins and ends so is a log, maybe cut at its front, or empty."""
    return not begin or bool(_HEAD.match(begin) or _END.search(end))
