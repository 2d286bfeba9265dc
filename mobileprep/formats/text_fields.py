"""Encoders from protobuf text to the wire format for the fields of a message descriptor."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor

from mobileprep.errors import CorruptFileError, nearest_hint
from mobileprep.formats.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    PAYLOAD_FIELD,
    VARINT,
    Buffer,
    encode_varint,
)

_INTEGER: Final = re.compile(rb"-?(?:0[xX][0-9a-fA-F]{1,16}|0[0-7]{0,22}|[1-9][0-9]{0,19})\Z")
_FLOAT: Final = re.compile(rb"(-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)[fF]?\Z")
_NOT_FINITE: Final = {b"inf": math.inf, b"infinity": math.inf, b"nan": math.nan}
_BOOLEANS: Final = {
    **dict.fromkeys((b"true", b"True", b"t", b"1"), b"\1"),
    **dict.fromkeys((b"false", b"False", b"f", b"0"), b"\0"),
}
_RANGES: Final = {
    FieldDescriptor.TYPE_INT32: (-(1 << 31), 1 << 31),
    FieldDescriptor.TYPE_INT64: (-(1 << 63), 1 << 63),
    FieldDescriptor.TYPE_UINT32: (0, 1 << 32),
    FieldDescriptor.TYPE_UINT64: (0, 1 << 64),
    FieldDescriptor.TYPE_FIXED32: (0, 1 << 32),
    FieldDescriptor.TYPE_ENUM: (-(1 << 31), 1 << 31),
}

Encode = Callable[[bytes], bytes]


class Field:
    """A field of a message.

    Attributes:
        name: name in the text.
        tag: wire tag of strings and messages.
        scalar: encodes a number, a boolean, or an enum name with its tag, or raises ValueError;
            None for strings and messages.
        is_text: whether the field accepts quoted strings.
        bit: bit for the field in the mask of fields that a message contains; 0 for repeated fields.
    """

    __slots__ = ("_descriptor", "_message", "_utf8", "bit", "is_text", "name", "scalar", "tag")

    def __init__(self, descriptor: FieldDescriptor, bit: int) -> None:
        self.name = descriptor.name
        self.tag = encode_varint(descriptor.number << 3 | BYTES)
        self.bit = bit
        self.scalar = _scalar_encoder(descriptor)
        self.is_text = descriptor.type in (descriptor.TYPE_STRING, descriptor.TYPE_BYTES)
        self._utf8 = descriptor.type == descriptor.TYPE_STRING
        self._descriptor = descriptor
        self._message: Mapping[bytes, Field] | None = None

    @property
    def siblings(self) -> Mapping[str, Descriptor]:
        """The messages in the same file as the message of this field, by name."""
        # Every field has a file, but the type stubs of protobuf do not declare it.
        file: FileDescriptor = self._descriptor.file  # type: ignore[attr-defined]
        siblings: Mapping[str, Descriptor] = file.message_types_by_name
        return siblings

    @property
    def message(self) -> Mapping[bytes, Field] | None:
        """The fields of this field's message type, or None for a scalar."""
        if self._message is None:
            kind = self._descriptor.message_type
            self._message = None if kind is None else fields_of(kind)
        return self._message

    def text(self, value: bytes) -> bytes:
        """Encode an unescaped string, including the tag."""
        if self._utf8 and not value.isascii():
            try:
                value.decode("utf-8")
            except UnicodeDecodeError as error:
                msg = f"the string of {self.name!r} is not valid UTF-8"
                raise ValueError(msg) from error
        return self.tag + encode_varint(len(value)) + value


@lru_cache(maxsize=1024)
def fields_of(descriptor: Descriptor) -> Mapping[bytes, Field]:
    """Return the fields of a message by their name in text, without the internal payload field."""
    fields: dict[bytes, Field] = {}
    bits: dict[str, int] = {}
    for entry in descriptor.fields:
        if entry.number == PAYLOAD_FIELD:
            continue
        bit = 0
        if not _is_repeated(entry):
            # At most one field of a oneof may be set, so its fields share a bit.
            group = entry.containing_oneof.name if entry.containing_oneof else f".{entry.name}"
            bit = bits.setdefault(group, 1 << len(bits))
        fields[entry.name.encode()] = Field(entry, bit)
    return fields


def _is_repeated(descriptor: Any) -> bool:  # noqa: ANN401 - protobuf 4 and 7 differ here
    # protobuf 7 has only the property, 4.21 only the label.
    if hasattr(descriptor, "is_repeated"):
        return bool(descriptor.is_repeated)
    return bool(descriptor.label == FieldDescriptor.LABEL_REPEATED)


def _scalar_encoder(descriptor: FieldDescriptor) -> Encode | None:
    kind, number = descriptor.type, descriptor.number
    if kind == descriptor.TYPE_FLOAT:
        return _float_encoder(encode_varint(number << 3 | FIXED32), "<f")
    if kind == descriptor.TYPE_DOUBLE:
        return _float_encoder(encode_varint(number << 3 | FIXED64), "<d")
    if kind == descriptor.TYPE_FIXED32:
        return _fixed32_encoder(encode_varint(number << 3 | FIXED32))
    tag = encode_varint(number << 3 | VARINT)
    if kind == descriptor.TYPE_BOOL:
        return _name_encoder({k: tag + v for k, v in _BOOLEANS.items()}, "true or false")
    if kind == descriptor.TYPE_ENUM and descriptor.enum_type is not None:
        return _enum_encoder(tag, descriptor.enum_type)
    if kind in _RANGES:
        return _integer_encoder(tag, *_RANGES[kind])
    return None


def _integer_encoder(tag: bytes, low: int, high: int) -> Encode:
    def encode(token: bytes) -> bytes:
        value = _integer(token, low, high)
        return tag + encode_varint(value if value >= 0 else value + (1 << 64))

    return encode


def _fixed32_encoder(tag: bytes) -> Encode:
    def encode(token: bytes) -> bytes:
        return tag + struct.pack("<I", _integer(token, *_RANGES[FieldDescriptor.TYPE_FIXED32]))

    return encode


def _integer(token: bytes, low: int, high: int) -> int:
    if not _INTEGER.match(token):
        msg = f"{_shown(token)} is not an integer"
        raise ValueError(msg)
    digits = token.lstrip(b"-")
    octal = len(digits) > 1 and digits.isdigit() and digits[:1] == b"0"
    value = int(token, 8 if octal else 0)
    if not low <= value < high:
        msg = f"{_shown(token)} is out of the range {low} to {high - 1}"
        raise ValueError(msg)
    return value


def _float_encoder(tag: bytes, form: str) -> Encode:
    pack = struct.Struct(form).pack

    def encode(token: bytes) -> bytes:
        value = _float(token)
        try:
            return tag + pack(value)
        except OverflowError:  # Beyond single precision: infinite, as in TensorFlow.
            return tag + pack(math.copysign(math.inf, value))

    return encode


def _float(token: bytes) -> float:
    match = _FLOAT.match(token)
    if match:
        return float(match[1])
    sign = -1.0 if token[:1] == b"-" else 1.0
    value = _NOT_FINITE.get(token.removeprefix(b"-").lower())
    if value is None:
        msg = f"{_shown(token)} is not a number"
        raise ValueError(msg)
    return math.copysign(value, sign)


def _name_encoder(names: Mapping[bytes, bytes], expected: str) -> Encode:
    def encode(token: bytes) -> bytes:
        value = names.get(token)
        if value is None:
            msg = f"{_shown(token)} stands where {expected} is expected"
            raise ValueError(msg)
        return value

    return encode


def _enum_encoder(tag: bytes, enum: EnumDescriptor) -> Encode:
    names = {v.name.encode(): tag + encode_varint(v.number) for v in enum.values}
    by_number = _integer_encoder(tag, *_RANGES[FieldDescriptor.TYPE_ENUM])

    def encode(token: bytes) -> bytes:
        value = names.get(token)
        if value is not None:
            return value
        if _INTEGER.match(token):
            return by_number(token)
        near = nearest_hint(_shown(token), [n.decode() for n in names])
        msg = f"{_shown(token)} is not a {enum.name}" + (f"; {near}" if near else "")
        raise ValueError(msg)

    return encode


def _shown(token: bytes) -> str:
    text = token.decode("ascii", "backslashreplace")
    return text if len(text) <= 40 else text[:40] + "..."


_ENDS: Final = {ord('"'): re.compile(rb'["\n]'), ord("'"): re.compile(rb"['\n]")}
_BACKSLASH: Final = ord("\\")
_ESCAPE_RUN: Final = re.compile(rb"(?<!\\)\\")
# Escapes that Python's decoder reads differently from protobuf: wide octal, \u, 1-digit \x...
_UNUSUAL: Final = re.compile(rb"""\\(?![0-3][0-7][0-7]|[abfnrtv'"])""")
_ESCAPE: Final = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.)|\Z)",
    re.DOTALL,
)
_SIMPLE: Final = dict(zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?", strict=True))

# Bytes of long literals (weights) to decode at once, to limit the memory.
_PIECE: Final = 1 << 20


def literal_end(data: Buffer, start: int) -> int | None:
    """Return the position of the quote that ends the literal opened at ``start``, or None."""
    search = _ENDS[data[start]].search
    match = search(data, start + 1)
    while match is not None and data[match.start()] == data[start]:
        end = back = match.start()
        while data[back - 1] == _BACKSLASH:
            back -= 1
        if (end - back) % 2 == 0:
            return end
        match = search(data, end + 1)
    return None


def unescape(data: Buffer, start: int, end: int) -> bytes:
    """Decode the escapes in ``data[start:end]`` of a literal."""
    if end - start <= _PIECE:
        return _unescape_piece(bytes(data[start:end]))
    out = bytearray()
    while start < end:
        # The start of a run of backslashes is the start of an escape: a safe position to split.
        cut = _ESCAPE_RUN.search(data, min(start + _PIECE, end), end)
        stop = cut.start() if cut else end
        out += _unescape_piece(bytes(data[start:stop]))
        start = stop
    return bytes(out)


def _unescape_piece(piece: bytes) -> bytes:
    if _BACKSLASH not in piece:
        return piece
    # Without double backslashes, every backslash starts an escape.
    plain = piece.replace(rb"\\", rb"\134")
    if _UNUSUAL.search(plain):
        return _ESCAPE.sub(_one_escape, piece)
    return plain.decode("unicode_escape").encode("latin-1")


def _one_escape(match: re.Match[bytes]) -> bytes:
    octal, short, four, eight, letter = match.groups()
    if octal or short:
        value = int(octal, 8) if octal else int(short, 16)
        if value > 0xFF:
            msg = f"the escape {match[0].decode()} is beyond one byte"
            raise ValueError(msg)
        return bytes([value])
    if four or eight:
        return _utf8(int(four or eight, 16), match[0].decode())
    if letter is None or letter[0] not in _SIMPLE:
        shown = match[0].decode("ascii", "backslashreplace")
        msg = f"the escape {shown} is unknown"
        raise ValueError(msg)
    return bytes([_SIMPLE[letter[0]]])


def _utf8(code: int, shown: str) -> bytes:
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        msg = f"the escape {shown} is not a character"
        raise ValueError(msg)
    return chr(code).encode("utf-8")


_BLANK: Final = re.compile(rb"(?:[\s;,]+|#[^\n]*)*")
_SPACE: Final = re.compile(rb"(?:\s+|#[^\n]*)*")
_TOKEN: Final = re.compile(rb"(?:-\s*)?[.\w][-+.\w]*")
_SHOWN: Final = re.compile(rb"[\w.]+|\S")
_BOM: Final = b"\xef\xbb\xbf"


class Scanner:
    """A forward reader of text.

    Args:
        data: the text, as UTF-8; a byte order mark is skipped.
        file: name of the file, for messages.
    """

    def __init__(self, data: Buffer, file: str) -> None:
        self.data = data
        self.file = file
        self.at = len(_BOM) if bytes(data[: len(_BOM)]) == _BOM else 0

    def token(self) -> bytes:
        """Read a number or a name; white space may follow a minus sign."""
        match = _TOKEN.match(self.data, self.at)
        if match is None:
            expected = "a value"
            raise self.unexpected(expected)
        self.at = match.end()
        return b"".join(match[0].split())

    def literals(self, *, keep: bool) -> bytes:
        """Read one literal, or several adjacent ones, which are concatenated."""
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
            # There is no separator between adjacent literals.
            if self.skip_blank(_SPACE) not in (b'"', b"'"):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def skip_blank(self, blank: re.Pattern[bytes] = _BLANK) -> bytes:
        """Skip white space, comments, and by default separators.

        Returns:
            The next byte; empty at the end of the text.
        """
        match = blank.match(self.data, self.at)
        if match is not None:
            self.at = match.end()
        return bytes(self.data[self.at : self.at + 1])

    def unexpected(self, expected: str) -> CorruptFileError:
        """Return the error for text that is not the expected one."""
        match = _SHOWN.match(self.data, self.at)
        shown = match[0][:40].decode("ascii", "backslashreplace") if match else ""
        what = f"{shown!r} stands" if shown else "the text ends"
        return self.error(f"{what} where {expected} is expected", self.at)

    def error(self, what: str, at: int) -> CorruptFileError:
        """Return the error for a position, with line and column."""
        hint = "the text is damaged or of another kind; export it again"
        return CorruptFileError(what, hint, f"{self.file}:{self.place(at)}")

    def place(self, at: int) -> str:
        """Return line and column of a position, starting at 1."""
        before = bytes(self.data[:at])
        return f"{before.count(10) + 1}:{at - before.rfind(10)}"
