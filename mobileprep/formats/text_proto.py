"""Protobuf text turned into the wire format in one pass, driven by a message's descriptor.

A line in its usual form costs one match of a regular expression; the rest of the grammar
(comments, ``<>``, lists, adjacent literals, unusual escapes, extensions) takes the slow way.
The text is read where it lies, and at any moment only the open messages are held beside the
result, so that a text graph takes little more than its binary form in memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from google.protobuf.descriptor import Descriptor

from mobileprep.errors import CorruptFileError
from mobileprep.formats.cursor import Buffer
from mobileprep.formats.text_fields import Field, fields_of
from mobileprep.formats.text_literals import literal_end, unescape
from mobileprep.formats.wire import field_header

_USUAL: Final = re.compile(
    rb"""[\s;,]*(?:
        ([A-Za-z_]\w*)\s*(?:
            :\s*(?: "([^"\\\n]*)"(?!\s*["'\#]) | ([-+.\w]+) )
            | :?\s*([{<])
        )
        | ([}>])
    )""",
    re.VERBOSE,
)
_STRING, _ATOM, _OPEN, _CLOSE = 2, 3, 4, 5  # groups of the pattern above

_BLANK: Final = re.compile(rb"(?:[\s;,]+|#[^\n]*)*")
_SPACE: Final = re.compile(rb"(?:\s+|#[^\n]*)*")
_NAME: Final = re.compile(rb"[A-Za-z_]\w*|\[[\w./%-]+\]|\d+(?=\s*:)")
_TOKEN: Final = re.compile(rb"-\s*[.\w][-+.\w]*|[-+.\w]+")
_SHOWN: Final = re.compile(rb"[\w.]+|\S")
_CLOSERS: Final = {b"{": b"}", b"<": b">"}
_NO_FIELDS: Final[Mapping[bytes, Field]] = {}
_DEEPEST: Final = 100  # protobuf's own limit
_BOM: Final = b"\xef\xbb\xbf"


def text_to_wire(data: Buffer, descriptor: Descriptor, file: str) -> memoryview:
    """The wire form of a message given as protobuf text.

    Fields that the descriptor does not know are skipped, and so are messages in fields that it
    declares as plain bytes.

    Args:
        data: the text, as UTF-8.
        descriptor: the message that it holds.
        file: its name, for messages.

    Raises:
        CorruptFileError: at ``file:line:column``, what is not as the grammar or the message has it.
    """
    return _Parser(data, fields_of(descriptor), file).parse()


class _Frame:
    """A message whose end has not come yet."""

    __slots__ = ("closer", "fields", "is_list", "out", "owner", "seen", "start")

    def __init__(
        self, fields: Mapping[bytes, Field], owner: Field | None, closer: bytes, start: int
    ) -> None:
        self.fields = fields
        self.owner = owner
        self.closer = closer
        self.start = start
        self.is_list = closer == b"]"
        self.out = bytearray()
        self.seen = 0


class _Parser:
    def __init__(self, data: Buffer, fields: Mapping[bytes, Field], file: str) -> None:
        self._data = data
        self._file = file
        self._at = len(_BOM) if bytes(data[: len(_BOM)]) == _BOM else 0
        self._frame = _Frame(fields, None, b"", 0)
        self._stack = [self._frame]

    def parse(self) -> memoryview:
        data, match = self._data, _USUAL.match
        while True:
            found = None if self._frame.is_list else match(data, self._at)
            if found is None:
                if not self._unusual():
                    return memoryview(self._frame.out).toreadonly()
                continue
            shape = found.lastindex
            if shape == _CLOSE:
                self._close(found[_CLOSE], found.start(_CLOSE))
            else:
                frame = self._frame
                field = frame.fields.get(found[1])
                if shape == _OPEN:
                    self._open(field, found[_OPEN], found.start(_OPEN))
                elif field is not None:
                    self._value(frame, field, found, shape)
            self._at = found.end()

    def _value(
        self, frame: _Frame, field: Field, found: re.Match[bytes], shape: int | None
    ) -> None:
        try:
            if shape == _ATOM and field.scalar is not None:
                encoded = field.scalar(found[_ATOM])
            elif shape == _STRING and field.is_text:
                encoded = field.text(found[_STRING])
            else:
                raise self._error(_misfit(field), found.start(shape or 0))
        except ValueError as error:
            raise self._error(str(error), found.start(shape or 0)) from error
        if frame.seen & field.bit:
            raise self._twice(field, found.start(1))
        frame.seen |= field.bit
        frame.out += encoded

    def _open(self, field: Field | None, opener: bytes, start: int) -> None:
        if len(self._stack) > _DEEPEST:
            raise self._error(f"messages are nested more than {_DEEPEST} deep", start)
        message = None if field is None else field.message
        if field is not None and message is None and not field.is_text:
            raise self._error(_misfit(field), start)
        if field is not None and self._frame.seen & field.bit:
            raise self._twice(field, start)
        if field is not None:
            self._frame.seen |= field.bit
        # A message in a field declared as bytes is one that we do not model: read, not kept.
        owner = None if message is None else field
        self._push(_Frame(message or _NO_FIELDS, owner, _CLOSERS[opener], start))

    def _push(self, frame: _Frame) -> None:
        self._stack.append(frame)
        self._frame = frame

    def _close(self, closer: bytes, start: int) -> None:
        frame = self._frame
        if closer != frame.closer:
            expected = f"{frame.closer.decode()!r} is" if frame.closer else "a field is"
            raise self._error(f"{closer.decode()!r} stands where {expected} expected", start)
        self._stack.pop()
        self._frame = parent = self._stack[-1]
        if frame.is_list:
            parent.out += frame.out
        elif frame.owner is not None:
            parent.out += field_header(frame.owner.number, len(frame.out))
            parent.out += frame.out

    def _unusual(self) -> bool:
        """Read on by one field, item or comment; False at the end of the text."""
        start = self._at
        here = self._skip_blank()
        if not here:
            if len(self._stack) > 1:
                opened = self._place(self._frame.start)
                raise self._error(f"the text ends inside the message opened at {opened}", self._at)
            return False
        if self._frame.is_list:
            self._item(here)
            return True
        if self._at > start:
            return True
        found = _NAME.match(self._data, self._at)
        if found is None:
            raise self._unexpected("a field's name")
        self._at = found.end()
        field = self._frame.fields.get(found[0])
        here = self._skip_blank()
        colon = here == b":"
        if colon:
            self._at += 1
            here = self._skip_blank()
        if here in _CLOSERS:
            self._open(field, here, self._at)
            self._at += 1
        elif not colon:
            raise self._unexpected("':' or '{'")
        elif here == b"[":
            self._open_list(field)
        else:
            self._scalar(field, found.start())
        return True

    def _open_list(self, field: Field | None) -> None:
        if field is not None and field.bit:
            raise self._error(f"the field {field.name!r} takes one value, not a list", self._at)
        self._push(_Frame(_NO_FIELDS, field, b"]", self._at))
        self._at += 1

    def _item(self, here: bytes) -> None:
        """Read one item of a list, or its end."""
        if here == b"]":
            self._close(here, self._at)
            self._at += 1
        elif here in _CLOSERS:
            self._open(self._frame.owner, here, self._at)
            self._at += 1
        else:
            self._scalar(self._frame.owner, self._at)

    def _scalar(self, field: Field | None, start: int) -> None:
        """Read a number, a name or literals, for a field or, where that is None, for nothing."""
        value_at = self._at
        here = bytes(self._data[value_at : value_at + 1])
        is_text = here in (b'"', b"'")
        token = self._literals(keep=field is not None) if is_text else self._token()
        if field is None:
            return
        if is_text != field.is_text or (not is_text and field.scalar is None):
            raise self._error(_misfit(field), value_at)
        if self._frame.seen & field.bit:
            raise self._twice(field, start)
        self._frame.seen |= field.bit
        try:
            self._frame.out += field.scalar(token) if field.scalar else field.text(token)
        except ValueError as error:
            raise self._error(str(error), value_at) from error

    def _token(self) -> bytes:
        found = _TOKEN.match(self._data, self._at)
        if found is None:
            raise self._unexpected("a value")
        self._at = found.end()
        return b"".join(found[0].split())

    def _literals(self, *, keep: bool) -> bytes:
        """The bytes of one literal or of several in a row, which count as one."""
        pieces = []
        while True:
            start = self._at
            end = literal_end(self._data, start)
            if end is None:
                raise self._error("a string does not end on its line", start)
            try:
                pieces.append(unescape(self._data, start + 1, end) if keep else b"")
            except ValueError as error:
                raise self._error(str(error), start) from error
            self._at = end + 1
            # Between literals that count as one no separator may stand.
            if self._skip_blank(_SPACE) not in (b'"', b"'"):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _skip_blank(self, blank: re.Pattern[bytes] = _BLANK) -> bytes:
        """Go past blanks, comments and, as a rule, separators; the next byte, or none at the end."""
        found = blank.match(self._data, self._at)
        if found is not None:
            self._at = found.end()
        return bytes(self._data[self._at : self._at + 1])

    def _unexpected(self, expected: str) -> CorruptFileError:
        found = _SHOWN.match(self._data, self._at)
        shown = found[0][:40].decode("ascii", "backslashreplace") if found else ""
        what = f"{shown!r} stands" if shown else "the text ends"
        return self._error(f"{what} where {expected} is expected", self._at)

    def _twice(self, field: Field, at: int) -> CorruptFileError:
        return self._error(f"the field {field.name!r} is given twice", at)

    def _error(self, what: str, at: int) -> CorruptFileError:
        hint = "the text is damaged or of another kind; export it again"
        return CorruptFileError(what, hint, f"{self._file}:{self._place(at)}")

    def _place(self, at: int) -> str:
        """Line and column, counted from 1, of a position."""
        before = bytes(self._data[:at])
        return f"{before.count(10) + 1}:{at - before.rfind(10)}"


def _misfit(field: Field) -> str:
    if field.is_text:
        return f"the field {field.name!r} takes a quoted string"
    if field.scalar is None:
        return f"the field {field.name!r} takes a message in braces"
    return f"the field {field.name!r} takes a number or a name"
