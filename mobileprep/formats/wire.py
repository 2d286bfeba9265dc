"""Read bytes within bounds, and separate large tensor payloads from graphs in wire format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from mobileprep.errors import CorruptFileError

# Nearly all lengths and tags are this small, and each node of a graph has about ten.
_SHORT: Final = tuple(bytes([value]) for value in range(1 << 7))

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

# Below this many bytes, a copy is cheaper than a view.
LARGE: Final = 1024

# Largest number whose varint takes one byte.


class Layout(Struct, frozen=True):
    """The length-delimited fields of a message that lead to tensors."""

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


class Payload(Struct, frozen=True):
    """The bytes of a tensor field, and its field number in TensorProto.

    ``sha256`` is their digest if known, otherwise empty.
    """

    field: int
    view: memoryview
    sha256: str = ""


_TAKEN: Final = Payload(0, memoryview(b""))


def split_payloads(data: Buffer, layout: Layout, file: str) -> tuple[bytes, list[Payload]]:
    """Return a serialized message without its large tensor payloads, and these payloads."""
    payloads: list[Payload] = []
    return without_payloads(Cursor(data, file=file), layout, payloads), payloads


def split_fields(data: Buffer, size: int, file: str) -> Iterator[Cursor]:
    """Yield cursors on whole fields of a serialized message, in order.

    Each has about ``size`` bytes, or one larger field. Parsing them one by one takes far less
    memory than parsing the whole message.
    """
    cursor, start = Cursor(data, file=file), 0
    while cursor:
        skip_field(cursor, cursor.varint())
        if cursor.position - start >= size or not cursor:
            yield Cursor(data, start, cursor.position, file=file)
            start = cursor.position


def without_payloads(cursor: Cursor, layout: Layout, payloads: list[Payload]) -> bytes:
    """Return the message at the cursor without its large tensor payloads, appended to ``payloads``.

    In the returned bytes, each payload is replaced with its index plus one in the field ``payload``
    of its TensorProto.
    """
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
        begin = cursor.position
        cursor.skip(length)
        stop = cursor.position
        if length < LARGE:
            continue
        if number == movable:
            pieces.append(view[run:start])
            payloads.append(Payload(number, view[begin:stop]))
            pieces.append(encode_varint(PAYLOAD_FIELD << 3 | VARINT) + encode_varint(len(payloads)))
        elif number in layout.fields:
            pieces.append(view[run:start])
            inner = Cursor(cursor.data, begin, stop, file=cursor.file, base=cursor.base)
            body = without_payloads(inner, layout.fields[number], payloads)
            pieces.append(delimited(number, body))
        else:
            continue
        run = stop
    pieces.append(view[run : cursor.end])
    return b"".join(pieces)


def _movable_field(cursor: Cursor) -> int:
    """Return the number of the only large payload field of a TensorProto, or 0.

    A repeated field stays in place, because protobuf merges its values.
    """
    scout = Cursor(cursor.data, cursor.position, cursor.end, file=cursor.file, base=cursor.base)
    field = 0
    while scout:
        tag = scout.varint()
        if tag >> 3 in _MOVABLE:
            if field or tag & 7 != BYTES:
                return 0
            field = tag >> 3
        skip_field(scout, tag)
    return field


def skip_field(cursor: Cursor, tag: int) -> None:
    """Skip the body of a field whose tag was already read."""
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
    """Encode a non-negative integer in base 128, low group first."""
    if 0 <= value < len(_SHORT):
        return _SHORT[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field_header(number: int, length: int) -> bytes:
    """Return tag and length of a length-delimited field."""
    return encode_varint(number << 3 | BYTES) + encode_varint(length)


def delimited(number: int, body: bytes) -> bytes:
    """Return a complete length-delimited field."""
    return field_header(number, len(body)) + body


def payload_at(payloads: list[Payload], number: int, file: str) -> Payload:
    """Return the payload that the field ``payload`` refers to; each can be used only once.

    If a file itself contains that field, in a tensor that is too small to be parsed, it refers to
    the payload of another tensor, and the second use raises an error.
    """
    payload = payloads[number - 1] if 1 <= number <= len(payloads) else _TAKEN
    if payload is _TAKEN:
        message = "a tensor has a field that no TensorFlow writes"
        raise CorruptFileError(message, "write the graph again with TensorFlow", file)
    payloads[number - 1] = _TAKEN
    return payload


_VARINT_BYTES = 10
_UINT64 = (1 << 64) - 1

Buffer = bytes | memoryview


class Cursor:
    """A forward reader of ``data[position:end]``.

    Args:
        data: the bytes.
        position: initial position.
        end: position after the last byte. Default: the length of ``data``.
        file: name of the file, for messages.
        base: offset of ``data[0]`` in that file, for messages.
    """

    __slots__ = ("base", "data", "end", "file", "position")

    def __init__(
        self,
        data: Buffer,
        position: int = 0,
        end: int | None = None,
        *,
        file: str = "",
        base: int = 0,
    ) -> None:
        self.data = data
        self.position = position
        self.end = len(data) if end is None else min(end, len(data))
        self.file = file
        self.base = base

    def __bool__(self) -> bool:
        return self.position < self.end

    def corrupt(self, what: str) -> CorruptFileError:
        """Return the error for the current position."""
        where = f"{self.file}, byte {self.base + self.position}"
        return CorruptFileError(what, "the file is damaged or of another kind", where)

    def varint(self) -> int:
        """Read an unsigned varint of at most 64 bits."""
        result = shift = 0
        data, position, end = self.data, self.position, self.end
        limit = min(end, position + _VARINT_BYTES)
        while position < limit:
            byte = data[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return result & _UINT64
            shift += 7
        msg = "a variable-length integer does not end"
        raise self.corrupt(msg)

    def take(self, count: int) -> memoryview:
        """Return a view of the next ``count`` bytes."""
        start = self.position
        self.skip(count)
        return memoryview(self.data)[start : self.position]

    def skip(self, count: int) -> None:
        """Skip the next ``count`` bytes."""
        remaining = self.end - self.position
        if not 0 <= count <= remaining:
            msg = f"{count} bytes are declared where {remaining} remain"
            raise self.corrupt(msg)
        self.position += count

    def fixed(self, width: int) -> int:
        """Read a little-endian unsigned integer of ``width`` bytes."""
        return int.from_bytes(self.take(width), "little")
