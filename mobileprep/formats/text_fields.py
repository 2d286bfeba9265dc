"""How the fields of a message are encoded from their text form, worked out from descriptors."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor

from mobileprep.errors import nearest_hint
from mobileprep.formats.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    PAYLOAD_FIELD,
    VARINT,
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
    """One field of a message.

    Attributes:
        name: as the text spells it.
        tag: of its texts and messages, on the wire.
        scalar: encodes a number, a boolean or an enum name, tag included, or raises ValueError
            with the fault; None for strings and messages.
        is_text: whether the field takes quoted strings.
        bit: set in a message's mask once the field was given; 0 for repeated fields.
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
        """The messages that the file of this field's message defines, by name."""
        # Every field has a file; the published types of protobuf leave it out.
        file: FileDescriptor = self._descriptor.file  # type: ignore[attr-defined]
        siblings: Mapping[str, Descriptor] = file.message_types_by_name
        return siblings

    @property
    def message(self) -> Mapping[bytes, Field] | None:
        """The fields of this field's messages, or None for a scalar."""
        if self._message is None:
            kind = self._descriptor.message_type
            self._message = None if kind is None else fields_of(kind)
        return self._message

    def text(self, value: bytes) -> bytes:
        """Encode an unescaped string, tag included.

        Raises:
            ValueError: the field holds text and the bytes are no UTF-8.
        """
        if self._utf8 and not value.isascii():
            try:
                value.decode("utf-8")
            except UnicodeDecodeError as error:
                msg = f"the string of {self.name!r} is no UTF-8 text"
                raise ValueError(msg) from error
        return self.tag + encode_varint(len(value)) + value


@lru_cache(maxsize=1024)
def fields_of(descriptor: Descriptor) -> Mapping[bytes, Field]:
    """The fields of a message by their name in the text; our own bookkeeping field left out."""
    fields: dict[bytes, Field] = {}
    bits: dict[str, int] = {}
    for entry in descriptor.fields:
        if entry.number == PAYLOAD_FIELD:
            continue
        bit = 0
        if not _is_repeated(entry):
            # Of a oneof at most one field may be given, so its fields share their bit.
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
        msg = f"{_shown(token)} is no integer"
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
        except OverflowError:  # beyond single precision: infinite, as TensorFlow reads it
            return tag + pack(math.copysign(math.inf, value))

    return encode


def _float(token: bytes) -> float:
    found = _FLOAT.match(token)
    if found:
        return float(found[1])
    sign = -1.0 if token[:1] == b"-" else 1.0
    value = _NOT_FINITE.get(token.removeprefix(b"-").lower())
    if value is None:
        msg = f"{_shown(token)} is no number"
        raise ValueError(msg)
    return math.copysign(value, sign)


def _name_encoder(names: Mapping[bytes, bytes], expected: str) -> Encode:
    def encode(token: bytes) -> bytes:
        found = names.get(token)
        if found is None:
            msg = f"{_shown(token)} stands where {expected} is expected"
            raise ValueError(msg)
        return found

    return encode


def _enum_encoder(tag: bytes, enum: EnumDescriptor) -> Encode:
    names = {v.name.encode(): tag + encode_varint(v.number) for v in enum.values}
    by_number = _integer_encoder(tag, *_RANGES[FieldDescriptor.TYPE_ENUM])

    def encode(token: bytes) -> bytes:
        found = names.get(token)
        if found is not None:
            return found
        if _INTEGER.match(token):
            return by_number(token)
        near = nearest_hint(_shown(token), [n.decode() for n in names])
        msg = f"{_shown(token)} is no {enum.name}" + (f"; {near}" if near else "")
        raise ValueError(msg)

    return encode


def _shown(token: bytes) -> str:
    text = token.decode("ascii", "backslashreplace")
    return text if len(text) <= 40 else text[:40] + "..."
