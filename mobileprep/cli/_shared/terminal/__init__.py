"""What kind of terminal a stream leads to, and one line of it that is written over in place."""

from __future__ import annotations

import contextlib
import os
from typing import TextIO

_USUAL_WIDTH = 80
# Terminals that only ever go on to the next line, such as the shells inside editors.
_DUMB = frozenset({"dumb", "unknown"})


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream leads to a terminal on which a line can be written over."""
    return stream.isatty() and os.environ.get("TERM") not in _DUMB


def columns(stream: TextIO) -> int:
    """Return the current width of the stream's terminal, or 80 if it is unknown."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or _USUAL_WIDTH
    except (OSError, ValueError):
        return _USUAL_WIDTH


class StatusLine:
    """The last line of a terminal, written over in place; other lines go above it.

    It is made of carriage returns and blanks alone, without escape codes: every terminal but a
    dumb one knows them, and there is no state of the terminal to be restored. The cursor stays
    at the line's beginning, so that what a library writes on its own begins there.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = ""

    @property
    def room(self) -> int:
        """How many characters fit; the terminal's last column makes some terminals go on."""
        return columns(self._stream) - 1

    def show(self, text: str) -> None:
        """Show a text, cut to the room there is; the same text again writes nothing."""
        room = self.room
        text = text[:room]
        if text == self._shown:
            return
        self._write(f"\r{text.ljust(min(len(self._shown), room))}\r")
        self._shown = text

    def above(self, lines: str) -> None:
        """Write whole lines where the status line is, and the status line below them."""
        shown, blanks = self._shown, min(len(self._shown), self.room)
        self._write(f"\r{'':{blanks}}\r{lines}{shown[: self.room]}\r")

    def erase(self) -> None:
        """Leave nothing of the status line."""
        self.show("")

    def _write(self, text: str) -> None:
        # A closed terminal must not end a build.
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()
