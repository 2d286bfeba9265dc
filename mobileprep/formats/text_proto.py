"""Convert protobuf text to the wire format in one pass, using a message's descriptor.

A line in the usual form takes a single regular expression match; the rest of the grammar (comments,
``<>``, lists, adjacent literals, unusual escapes, extensions) takes a slower path.

The text is not copied, and besides the result only the open messages are in memory, so that a text
graph takes little more memory than its binary form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from google.protobuf.message import DecodeError, Message

from mobileprep.core import parallel
from mobileprep.errors import CorruptFileError
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.protos import graph_text_pb2 as text
from mobileprep.formats.text_fields import Field, Scanner, fields_of
from mobileprep.formats.wire import Buffer, encode_varint

_USUAL: Final = re.compile(
    rb"""[\s;,]*(?:
        ([A-Za-z_]\w*)\s*(?:
            :\s*(?: "([^"\\\n]*)"(?!\s*["'\#]) | (-?[.\w][-+.\w]*) )
            | :?\s*([{<])
        )
        | ([}>])
    )""",
    re.VERBOSE,
)
_STRING, _ATOM, _OPEN, _CLOSE = 2, 3, 4, 5  # Groups of the pattern above.

_NAME: Final = re.compile(rb"[A-Za-z_]\w*|\[[\w./%-]+\]|\d+(?=\s*:)")
_CLOSERS: Final = {b"{": b"}", b"<": b">"}
_NO_FIELDS: Final[Mapping[bytes, Field]] = {}
_DEEPEST: Final = 100  # Protobuf's own limit.


def text_to_wire(data: Buffer, message: type[Message], file: str) -> memoryview:
    """Convert a message in protobuf text to the wire format.

    Unknown fields, and messages in fields that are declared as bytes, are skipped.

    Args:
        data: the text, as UTF-8.
        message: type of the message.
        file: name of the file, for messages.

    Raises:
        CorruptFileError: if the text is invalid.
    """
    return _Parser(data, fields_of(message.DESCRIPTOR), file).parse()


class _Frame:
    """An open message."""

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


class _Parser(Scanner):
    def __init__(self, data: Buffer, fields: Mapping[bytes, Field], file: str) -> None:
        super().__init__(data, file)
        self._frame = _Frame(fields, None, b"", 0)
        self._stack = [self._frame]

    def parse(self) -> memoryview:
        data, match_usual = self.data, _USUAL.match
        while True:
            match = None if self._frame.is_list else match_usual(data, self.at)
            if match is None:
                if not self._unusual():
                    return memoryview(self._frame.out).toreadonly()
                continue
            shape = match.lastindex
            if shape == _CLOSE:
                self._close(match[_CLOSE], match.start(_CLOSE))
                if len(self._stack) == 1 and parallel.is_heard():
                    parallel.report_progress(f"reading {self.file}", self.at, len(data), "bytes")
            else:
                frame = self._frame
                field = frame.fields.get(match[1])
                if shape == _OPEN:
                    self._open(field, match[_OPEN], match.start(_OPEN))
                elif field is not None:
                    self._value(frame, field, match, shape)
            self.at = match.end()

    def _value(
        self, frame: _Frame, field: Field, match: re.Match[bytes], shape: int | None
    ) -> None:
        try:
            if shape == _ATOM and field.scalar is not None:
                encoded = field.scalar(match[_ATOM])
            elif shape == _STRING and field.is_text:
                encoded = field.text(match[_STRING])
            else:
                raise self.error(_misfit(field), _value_start(match))
        except ValueError as error:
            raise self.error(str(error), _value_start(match)) from error
        if frame.seen & field.bit:
            raise self._twice(field, match.start(1))
        frame.seen |= field.bit
        frame.out += encoded

    def _open(self, field: Field | None, opener: bytes, start: int) -> None:
        if len(self._stack) > _DEEPEST:
            message = f"messages are nested more than {_DEEPEST} deep"
            raise self.error(message, start)
        fields = None if field is None else field.message
        if field is not None and fields is None and not field.is_text:
            raise self.error(_misfit(field), start)
        if field is not None and self._frame.seen & field.bit:
            raise self._twice(field, start)
        if field is not None:
            self._frame.seen |= field.bit
        # A message in a field declared as bytes is unknown: parse it, but do not keep it.
        owner = None if fields is None else field
        self._push(_Frame(fields or _NO_FIELDS, owner, _CLOSERS[opener], start))

    def _push(self, frame: _Frame) -> None:
        self._stack.append(frame)
        self._frame = frame

    def _close(self, closer: bytes, start: int) -> None:
        frame = self._frame
        if closer != frame.closer:
            expected = f"{frame.closer.decode()!r} is" if frame.closer else "a field is"
            message = f"{closer.decode()!r} stands where {expected} expected"
            raise self.error(message, start)
        self._stack.pop()
        self._frame = parent = self._stack[-1]
        if frame.is_list:
            parent.out += frame.out
        elif frame.owner is not None:
            parent.out += frame.owner.tag + encode_varint(len(frame.out)) + frame.out

    def _unusual(self) -> bool:
        """Parse one comment, item, or field; return False at the end of the text."""
        start = self.at
        here = self.skip_blank()
        if not here:
            self._check_closed()
            return False
        if self._frame.is_list:
            self._item(here)
        elif self.at == start:
            self._field()
        return True

    def _check_closed(self) -> None:
        if len(self._stack) > 1:
            opened = self.place(self._frame.start)
            message = f"the text ends inside the message opened at {opened}"
            raise self.error(message, self.at)

    def _field(self) -> None:
        match = _NAME.match(self.data, self.at)
        if match is None:
            expected = "a field's name"
            raise self.unexpected(expected)
        self.at = match.end()
        if match[0][:1] == b"[" and self._any(match[0]):
            return
        field = self._frame.fields.get(match[0])
        here = self.skip_blank()
        colon = here == b":"
        if colon:
            self.at += 1
            here = self.skip_blank()
        if here in _CLOSERS:
            self._open(field, here, self.at)
            self.at += 1
        elif here == b"[":
            self._open_list(field)
        elif colon:
            self._scalar(field, match.start())
        else:
            expected = "':' or '{'"
            raise self.unexpected(expected)

    def _any(self, url: bytes) -> bool:
        """Open the message in "[type.googleapis.com/package.Name] {...}" if its type is known."""
        fields = self._frame.fields
        type_url, value = fields.get(b"type_url"), fields.get(b"value")
        name = url[1:-1].rpartition(b".")[2].decode()
        if type_url is None or value is None or name not in value.siblings:
            return False
        here = self.skip_blank()
        if here == b":":
            self.at += 1
            here = self.skip_blank()
        if here not in _CLOSERS:
            expected = "'{'"
            raise self.unexpected(expected)
        self._frame.out += type_url.text(url[1:-1])
        inner = fields_of(value.siblings[name])
        self._push(_Frame(inner, value, _CLOSERS[here], self.at))
        self.at += 1
        return True

    def _open_list(self, field: Field | None) -> None:
        if field is not None and field.bit:
            message = f"the field {field.name!r} takes one value, not a list"
            raise self.error(message, self.at)
        self._push(_Frame(_NO_FIELDS, field, b"]", self.at))
        self.at += 1

    def _item(self, here: bytes) -> None:
        """Parse one item of a list, or its end."""
        if here == b"]":
            self._close(here, self.at)
            self.at += 1
        elif here in _CLOSERS:
            self._open(self._frame.owner, here, self.at)
            self.at += 1
        else:
            self._scalar(self._frame.owner, self.at)

    def _scalar(self, field: Field | None, start: int) -> None:
        """Parse a number, a name, or literals; discard the value if there is no field."""
        value_at = self.at
        here = bytes(self.data[value_at : value_at + 1])
        is_text = here in (b'"', b"'")
        token = self.literals(keep=field is not None) if is_text else self.token()
        if field is None:
            return
        if is_text != field.is_text or (not is_text and field.scalar is None):
            raise self.error(_misfit(field), value_at)
        if self._frame.seen & field.bit:
            raise self._twice(field, start)
        self._frame.seen |= field.bit
        try:
            self._frame.out += field.scalar(token) if field.scalar else field.text(token)
        except ValueError as error:
            raise self.error(str(error), value_at) from error

    def _twice(self, field: Field, at: int) -> CorruptFileError:
        return self.error(f"the field {field.name!r} is given twice", at)


def _value_start(match: re.Match[bytes]) -> int:
    shape = match.lastindex or 0
    return match.start(shape) - (shape == _STRING)  # The group does not include the quote.


def _misfit(field: Field) -> str:
    if field.is_text:
        return f"the field {field.name!r} takes a quoted string"
    if field.scalar is None:
        return f"the field {field.name!r} takes a message in braces"
    return f"the field {field.name!r} takes a number or a name"


def text_of_wire(data: bytes) -> str:
    """Format a serialized graph as text, without unknown fields."""
    from google.protobuf import text_format  # Slow to import, and not needed for reading.

    try:
        spelt = text.GraphDef.FromString(data)
    except DecodeError:
        spelt = text.GraphDef.FromString(_readable(data))
    return text_format.MessageToString(spelt)


def wire_of_text(data: Buffer, file: str) -> memoryview:
    """Convert a graph in text to the wire format.

    Args:
        data: the text, as UTF-8.
        file: name of the file, for messages.

    Raises:
        CorruptFileError: if the text is invalid.
    """
    try:
        return text_to_wire(data, text.GraphDef, file)
    except CorruptFileError:
        # Records of a later release can have unknown names: try without them.
        return text_to_wire(data, pb.GraphDef, file)


def _readable(data: bytes) -> bytes:
    """Remove the records of a serialized graph that cannot be parsed."""
    proto = pb.GraphDef.FromString(data)
    for node in _nodes(proto):
        if not _is_one(text.NodeDef.ExperimentalDebugInfo, node.experimental_debug_info):
            node.ClearField("experimental_debug_info")
        if not _is_one(text.FullTypeDef, node.experimental_type):
            node.ClearField("experimental_type")
    for arg in _args(proto):
        if not all(_is_one(text.OpDef.ArgDef.DtypeAndShape, h) for h in arg.handle_data):
            arg.ClearField("handle_data")
    return proto.SerializeToString(deterministic=True)


def _nodes(proto: pb.GraphDef) -> Iterator[pb.NodeDef]:
    yield from proto.node
    for function in proto.library.function:
        yield from function.node_def


def _args(proto: pb.GraphDef) -> Iterator[pb.OpDef.ArgDef]:
    for function in proto.library.function:
        yield from function.signature.input_arg
        yield from function.signature.output_arg


def _is_one(kind: type[Message], data: bytes) -> bool:
    try:
        kind.FromString(data)
    except DecodeError:
        return False
    return True
