"""Takes large tensor payloads out of a serialized graph before protobuf parses the rest.

A frozen graph is a few thousand small records around a few huge byte strings. Parsed as a
whole, every weight is copied; here the weights stay views on the caller's buffer (a mapped
file, as a rule) and protobuf sees only what is left, with a number in each payload's place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from mobileprep.errors import CorruptFileError
from mobileprep.formats.cursor import Buffer, Cursor

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
START_GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5

CONTENT_FIELD: Final = 4
FLOAT_FIELD: Final = 5
DOUBLE_FIELD: Final = 6
PAYLOAD_FIELD: Final = 500_000_000
_MOVABLE: Final = frozenset({CONTENT_FIELD, FLOAT_FIELD, DOUBLE_FIELD})

# Below this many bytes a copy is cheaper than a view and its bookkeeping.
LARGE: Final = 1024


@dataclass(frozen=True)
class Layout:
    """Which length-delimited fields of a message lead to tensors."""

    fields: dict[int, Layout] = field(default_factory=dict)
    is_tensor: bool = False


_TENSOR = Layout(is_tensor=True)
_VALUE = Layout({8: _TENSOR, 1: Layout({8: _TENSOR})})
_ATTR = Layout({2: _VALUE})
_NODE = Layout({5: _ATTR})
_FUNCTION = Layout({3: _NODE, 5: _ATTR})
GRAPH_LAYOUT: Final = Layout({1: _NODE, 2: Layout({1: _FUNCTION})})
META_GRAPH_LAYOUT: Final = Layout({2: GRAPH_LAYOUT})
SAVED_MODEL_LAYOUT: Final = Layout({2: META_GRAPH_LAYOUT})


@dataclass(frozen=True)
class Payload:
    """The bytes of one tensor field, and the field's number in TensorProto.

    ``sha256`` is their digest where it is known, else empty.
    """

    field: int
    view: memoryview
    sha256: str = ""


_TAKEN: Final = Payload(0, memoryview(b""))


def split_payloads(data: Buffer, layout: Layout, file: str) -> tuple[bytes, list[Payload]]:
    """A serialized message without its large tensor payloads, and those payloads.

    In the returned bytes each payload is replaced by its index plus one in the field
    ``payload`` of its TensorProto.

    Raises:
        CorruptFileError: a length runs past its message, or a tag is none.
    """
    payloads: list[Payload] = []
    cursor = Cursor(data, file=file)
    return _rebuild(cursor, layout, payloads), payloads


def split_runs(data: bytes, number: int, size: int, file: str) -> Iterator[tuple[bytes, bytes]]:
    """A serialized message in parts: records of one repeated field, and at last all other fields.

    Parsed one after another and then dropped, parts take far less memory than the whole message.

    Args:
        data: the message.
        number: the field's number; its records stay in order.
        size: how many bytes of records make up a part, at least; the last may have fewer.
        file: its name, for messages.

    Yields:
        Records, and nothing but with the last of them the other fields.

    Raises:
        CorruptFileError: a length runs past the message, or a tag is none.
    """
    view = memoryview(data)
    run, others = bytearray(), bytearray()
    record = number << 3 | BYTES
    cursor = Cursor(data, file=file)
    while cursor:
        start = cursor.position
        tag = cursor.varint()
        skip_field(cursor, tag)
        kept = run if tag == record else others
        kept += view[start : cursor.position]
        if len(run) >= size:
            yield bytes(run), b""
            run.clear()
    yield bytes(run), bytes(others)


def _rebuild(cursor: Cursor, layout: Layout, payloads: list[Payload]) -> bytes:
    """The message under the cursor, its large fields rebuilt, the rest copied in runs."""
    view = memoryview(cursor.data)
    pieces: list[bytes | memoryview] = []
    run = cursor.position
    movable = _movable_field(cursor) if layout.is_tensor else 0
    while cursor:
        start = cursor.position
        tag = cursor.varint()
        number, kind = tag >> 3, tag & 7
        if kind != BYTES or number == 0:
            skip_field(cursor, tag)
            if number == PAYLOAD_FIELD:
                msg = "a tensor has a field that no TensorFlow writes"
                raise cursor.corrupt(msg)
            continue
        length = cursor.varint()
        body = cursor.position
        cursor.skip(length)
        stop = cursor.position
        if length < LARGE:
            continue
        if number == movable:
            pieces.append(view[run:start])
            payloads.append(Payload(number, view[body:stop]))
            pieces.append(encode_varint(PAYLOAD_FIELD << 3 | VARINT) + encode_varint(len(payloads)))
        elif number in layout.fields:
            pieces.append(view[run:start])
            inner = Cursor(cursor.data, body, stop, file=cursor.file, base=cursor.base)
            pieces.append(delimited(number, _rebuild(inner, layout.fields[number], payloads)))
        else:
            continue
        run = stop
    pieces.append(view[run : cursor.end])
    return b"".join(pieces)


def _movable_field(cursor: Cursor) -> int:
    """The number of the one large payload field of a TensorProto, or 0.

    A field that is given twice is merged by protobuf's rules, so it stays where it is.
    """
    scout = Cursor(cursor.data, cursor.position, cursor.end, file=cursor.file, base=cursor.base)
    found = 0
    while scout:
        tag = scout.varint()
        if tag >> 3 in _MOVABLE:
            if found or tag & 7 != BYTES:
                return 0
            found = tag >> 3
        skip_field(scout, tag)
    return found


def skip_field(cursor: Cursor, tag: int) -> None:
    """Pass over the body of a field whose tag was read.

    Raises:
        CorruptFileError: the body runs past the message, or the tag is none.
    """
    kind = tag & 7
    if tag >> 3 == 0:
        msg = "a field has the number 0"
        raise cursor.corrupt(msg)
    if kind == VARINT:
        cursor.varint()
    elif kind == BYTES:
        cursor.skip(cursor.varint())
    elif kind == FIXED32:
        cursor.skip(4)
    elif kind == FIXED64:
        cursor.skip(8)
    else:
        msg = f"a field has the wire type {kind}, which no graph uses"
        raise cursor.corrupt(msg)


def encode_varint(value: int) -> bytes:
    """A non-negative integer in base-128, low group first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field_header(number: int, length: int) -> bytes:
    """Tag and length of a length-delimited field."""
    return encode_varint(number << 3 | BYTES) + encode_varint(length)


def delimited(number: int, body: bytes) -> bytes:
    """A whole length-delimited field."""
    return field_header(number, len(body)) + body


def payload_at(payloads: list[Payload], number: int, file: str) -> Payload:
    """The payload that ``payload: number`` stands for; each is handed out once.

    A file that has the field itself, in a tensor too small to be looked into, names a payload
    of another tensor, and one of the two comes too late.

    Raises:
        CorruptFileError: there is none of that number, or it is taken.
    """
    found = payloads[number - 1] if 1 <= number <= len(payloads) else _TAKEN
    if found is _TAKEN:
        message = "a tensor has a field that no TensorFlow writes"
        raise CorruptFileError(message, "write the graph anew with TensorFlow", file)
    payloads[number - 1] = _TAKEN
    return found
