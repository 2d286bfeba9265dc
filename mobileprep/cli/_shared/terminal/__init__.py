"""Print lines, detect terminals, and redraw a status line in place."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from mobileprep.core.printable import plain

_USUAL_WIDTH = 80
# Terminals that cannot return to the start of a line, such as shells inside editors.
_DUMB = frozenset({"dumb", "unknown"})


def is_terminal(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that can overwrite a line."""
    return stream.isatty() and os.environ.get("TERM") not in _DUMB


def columns(stream: TextIO) -> int:
    """Return the current width of the stream's terminal, or 80 if it is unknown."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or _USUAL_WIDTH
    except (OSError, ValueError):
        return _USUAL_WIDTH


def show(lines: Iterable[str], keep: str = "", *, file: TextIO | None = None) -> None:
    """Print lines with control characters and unencodable characters escaped."""
    stream = sys.stdout if file is None else file
    for line in lines:
        print(encodable(plain(line, keep), stream), file=stream)


def encodable(text: str, stream: TextIO) -> str:
    """Escape characters that a stream cannot encode."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


class StreamWrapper:
    """A text stream in front of another one, which provides all methods except for writing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of the stream
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text."""
        raise NotImplementedError

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several strings."""
        self.write("".join(lines))


class StatusLine:
    """The last line of a terminal, redrawn in place; other lines go above it.

    It uses only carriage returns and spaces, not escape codes. Every terminal except a dumb one
    supports them, and no terminal state must be restored. The cursor stays at the start of the
    line, so that output of libraries starts there.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = ""

    @property
    def room(self) -> int:
        """Number of characters that fit; some terminals wrap after the last column."""
        return columns(self._stream) - 1

    def show(self, text: str) -> None:
        """Show text, cut to the available width; write nothing if it is unchanged."""
        room = self.room
        text = text[:room]
        if text == self._shown:
            return
        self._write(f"\r{text.ljust(min(len(self._shown), room))}\r")
        self._shown = text

    def above(self, lines: str) -> None:
        """Write complete lines above the status line."""
        shown, blanks = self._shown, min(len(self._shown), self.room)
        self._write(f"\r{'':{blanks}}\r{lines}{shown[: self.room]}\r")

    def erase(self) -> None:
        self.show("")

    def _write(self, text: str) -> None:
        # A closed terminal must not end a build.
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()
