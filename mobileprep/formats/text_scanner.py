"""A position in protobuf text that moves over blanks, values and literals."""

from __future__ import annotations

import re
from typing import Final

from mobileprep.errors import CorruptFileError
from mobileprep.formats.cursor import Buffer
from mobileprep.formats.text_literals import literal_end, unescape

_BLANK: Final = re.compile(rb"(?:[\s;,]+|#[^\n]*)*")
_SPACE: Final = re.compile(rb"(?:\s+|#[^\n]*)*")
_TOKEN: Final = re.compile(rb"(?:-\s*)?[.\w][-+.\w]*")
_SHOWN: Final = re.compile(rb"[\w.]+|\S")
_BOM: Final = b"\xef\xbb\xbf"


class Scanner:
    """Reads forward through a text.

    Args:
        data: the text, as UTF-8; a byte order mark is passed over.
        file: its name, for messages.
    """

    def __init__(self, data: Buffer, file: str) -> None:
        self.data = data
        self.file = file
        self.at = len(_BOM) if bytes(data[: len(_BOM)]) == _BOM else 0

    def token(self) -> bytes:
        """A number or a name; a minus sign may stand apart from its number."""
        found = _TOKEN.match(self.data, self.at)
        if found is None:
            expected = "a value"
            raise self.unexpected(expected)
        self.at = found.end()
        return b"".join(found[0].split())

    def literals(self, *, keep: bool) -> bytes:
        """The bytes of one literal or of several in a row, which count as one."""
        pieces = []
        while True:
            start = self.at
            end = literal_end(self.data, start)
            if end is None:
                message = "a string does not end on its line"
                raise self.error(message, start)
            try:
                pieces.append(unescape(self.data, start + 1, end) if keep else b"")
            except ValueError as error:
                raise self.error(str(error), start) from error
            self.at = end + 1
            # Between literals that count as one no separator may stand.
            if self.skip_blank(_SPACE) not in (b'"', b"'"):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def skip_blank(self, blank: re.Pattern[bytes] = _BLANK) -> bytes:
        """Go past blanks, comments and, as a rule, separators.

        Returns:
            The byte that comes next; none at the end of the text.
        """
        found = blank.match(self.data, self.at)
        if found is not None:
            self.at = found.end()
        return bytes(self.data[self.at : self.at + 1])

    def unexpected(self, expected: str) -> CorruptFileError:
        """The error for something else standing where ``expected`` should."""
        found = _SHOWN.match(self.data, self.at)
        shown = found[0][:40].decode("ascii", "backslashreplace") if found else ""
        what = f"{shown!r} stands" if shown else "the text ends"
        return self.error(f"{what} where {expected} is expected", self.at)

    def error(self, what: str, at: int) -> CorruptFileError:
        """The error for a fault at a position, which it gives as line and column."""
        hint = "the text is damaged or of another kind; export it again"
        return CorruptFileError(what, hint, f"{self.file}:{self.place(at)}")

    def place(self, at: int) -> str:
        """Line and column, counted from 1, of a position."""
        before = bytes(self.data[:at])
        return f"{before.count(10) + 1}:{at - before.rfind(10)}"
