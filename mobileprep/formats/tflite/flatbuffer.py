"""FlatBuffers and FlexBuffers."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mobileprep.formats.tflite.layout import FormatFacts

MAX_BYTES: Final = (1 << 31) - 1
"""Maximum file size: offsets have 32 bits, of which builders use 31."""
_OFFSET_BYTES: Final = 4
_SLOT_BYTES: Final = 2

FieldValue: TypeAlias = "int | float | bool"


class TooLargeError(ValueError):
    """A file would exceed 2 GiB, the range of offsets."""


class FlatBufferWriter:
    """A writer of a file from its end to its start; offsets count from the end.

    Args:
        facts: layout of the format.
        room: expected number of bytes. A buffer that has to grow is copied.
    """

    def __init__(self, facts: FormatFacts, room: int = 1024) -> None:
        self._facts = facts
        self._bytes = bytearray(room)
        self._head = room
        self._alignment = 1
        self._vtables: dict[bytes, int] = {}

    def finished(self, root: int, identifier: bytes) -> memoryview:
        """Return the bytes of the file.

        Args:
            root: offset of the root table.
            identifier: four bytes that identify the format.
        """
        self._prepare(self._alignment, _OFFSET_BYTES + len(identifier))
        self._place(identifier)
        self._offset_to(root)
        return memoryview(self._bytes)[self._head :]

    def text(self, text: str) -> int:
        """Write a string, and return its offset."""
        content = text.encode()
        self._prepare(_OFFSET_BYTES, len(content) + 1)
        self._place(content + b"\0")
        return self._counted(len(content))

    def array(self, array: NDArray[Any]) -> int:
        """Write a vector of numbers, and return its offset."""
        stored = array.astype(array.dtype.newbyteorder("<"))
        return self.vector(stored.tobytes(), stored.size, stored.itemsize)

    def vector(self, content: bytes | memoryview, count: int, alignment: int) -> int:
        """Write a vector with this number of elements, and return its offset."""
        self._prepare(_OFFSET_BYTES, len(content))
        self._prepare(alignment, len(content))
        self._place(content)
        return self._counted(count)

    def offsets(self, offsets: Sequence[int]) -> int:
        """Write a vector of tables or strings, and return its offset."""
        self._prepare(_OFFSET_BYTES, _OFFSET_BYTES * len(offsets))
        for offset in reversed(offsets):
            self._offset_to(offset)
        return self._counted(len(offsets))

    def table(self, kind: str, **fields: FieldValue | None) -> int:
        """Write a table, and return its offset.

        Args:
            kind: name of the table type.
            fields: numbers and offsets by name, in writing order. None and default values are
                omitted.
        """
        end = self._size()
        slots: dict[int, int] = {}
        for name, value in fields.items():
            if value is None:
                continue
            index, number = self._facts.slot(kind, name)
            if number is None:
                self._offset_to(int(value))
            elif value == self._facts.default(kind, name):
                continue
            else:
                self._prepare(number.size, 0)
                self._place(number.pack(value))
            slots[index] = self._size()
        return self._end_table(end, slots)

    def _end_table(self, end: int, slots: dict[int, int]) -> int:
        """Write the vtable with the field positions, unless an earlier table has the same one."""
        self._prepare(_OFFSET_BYTES, 0)
        self._place(bytes(_OFFSET_BYTES))
        start = self._size()
        places = [start - slots[i] if i in slots else 0 for i in range(max(slots, default=-1) + 1)]
        head = (_SLOT_BYTES * (len(places) + 2), start - end)
        vtable = struct.pack(f"<{len(places) + 2}H", *head, *places)
        offset = self._vtables.get(vtable)
        if offset is None:
            self._place(vtable)
            offset = self._vtables[vtable] = self._size()
        struct.pack_into("<i", self._bytes, len(self._bytes) - start, offset - start)
        return start

    def _size(self) -> int:
        return len(self._bytes) - self._head

    def _counted(self, count: int) -> int:
        self._place(struct.pack("<I", count))
        return self._size()

    def _offset_to(self, offset: int) -> None:
        self._prepare(_OFFSET_BYTES, 0)
        self._place(struct.pack("<I", self._size() - offset + _OFFSET_BYTES))

    def _prepare(self, alignment: int, following: int) -> None:
        """Pad so that the position after the following bytes is aligned."""
        self._alignment = max(self._alignment, alignment)
        padding = -(self._size() + following) % alignment
        self._place(bytes(padding))
        self._reserve(alignment + following)

    def _place(self, content: bytes | memoryview) -> None:
        self._reserve(len(content))
        head = self._head - len(content)
        self._bytes[head : self._head] = content
        self._head = head

    def _reserve(self, count: int) -> None:
        if count <= self._head:
            return
        needed = self._size() + count
        if needed > MAX_BYTES:
            message = f"{needed} bytes"
            raise TooLargeError(message)
        grown = bytearray(min(max(2 * len(self._bytes), needed), MAX_BYTES))
        grown[len(grown) - self._size() :] = self._bytes[self._head :]
        self._head += len(grown) - len(self._bytes)
        self._bytes = grown


class Table:
    """A table of a file whose offsets `checker` has checked.

    Args:
        facts: layout of the format.
        kind: name of the table type.
        data: the file.
        position: position of the table.
    """

    def __init__(
        self, facts: FormatFacts, kind: str, data: bytes | memoryview, position: int
    ) -> None:
        self._facts = facts
        self._kind = kind
        self._data = data
        self._position = position
        self._vtable = position - struct.unpack_from("<i", data, position)[0]
        self._vtable_bytes = struct.unpack_from("<H", data, self._vtable)[0]

    def has(self, name: str) -> bool:
        """Return whether a field is stored."""
        return self._place(self._facts.slot(self._kind, name)[0]) is not None

    def number(self, name: str) -> int:
        """Return the value of a number, or its default."""
        index, number = self._facts.slot(self._kind, name)
        place = self._place(index)
        if place is None or number is None:
            return int(self._facts.default(self._kind, name))
        value: int = number.unpack_from(self._data, place)[0]
        return value

    def text(self, name: str) -> str:
        """Return a string, with invalid UTF-8 escaped; empty if it is not stored."""
        start = self._followed(name)
        if start is None:
            return ""
        (count,) = struct.unpack_from("<I", self._data, start)
        content = bytes(self._data[start + 4 : start + 4 + count])
        return content.decode("utf-8", "backslashreplace")

    def array(self, name: str, dtype: str) -> NDArray[Any]:
        """Return a view of a vector of numbers; empty if it is not stored."""
        start = self._followed(name)
        if start is None:
            return np.zeros(0, dtype)
        (count,) = struct.unpack_from("<I", self._data, start)
        return np.frombuffer(self._data, dtype, count, start + 4)

    def table(self, name: str, kind: str = "") -> Table | None:
        """Return the table of a field; None if it is not stored."""
        start = self._followed(name)
        if start is None:
            return None
        return Table(self._facts, kind or self._facts.field(self._kind, name)[1], self._data, start)

    def tables(self, name: str) -> Iterator[Table]:
        """Yield the tables of a vector, in order."""
        start = self._followed(name)
        if start is None:
            return
        kind = self._facts.field(self._kind, name)[1].strip("[]")
        (count,) = struct.unpack_from("<I", self._data, start)
        for place in range(start + 4, start + 4 + _OFFSET_BYTES * count, _OFFSET_BYTES):
            (distance,) = struct.unpack_from("<I", self._data, place)
            yield Table(self._facts, kind, self._data, place + distance)

    def _place(self, index: int) -> int | None:
        """Return the position of a field; None if it is not stored."""
        slot = 4 + _SLOT_BYTES * index
        if slot >= self._vtable_bytes:
            return None
        (distance,) = struct.unpack_from("<H", self._data, self._vtable + slot)
        return self._position + distance if distance else None

    def _followed(self, name: str) -> int | None:
        place = self._place(self._facts.slot(self._kind, name)[0])
        if place is None:
            return None
        start: int = place + struct.unpack_from("<I", self._data, place)[0]
        return start


def root_table(facts: FormatFacts, kind: str, data: bytes | memoryview) -> Table:
    """Return the root table of a file."""
    return Table(facts, kind, data, struct.unpack_from("<I", data, 0)[0])


_WIDTH: Final = 4
_WIDTH_BITS: Final = 2
_INT, _FLOAT, _KEY, _STRING, _MAP, _VECTOR, _KEY_VECTOR, _BOOL = 1, 3, 4, 5, 9, 10, 14, 26
_INLINE: Final = frozenset({_INT, _FLOAT, _BOOL})
_FORMATS: Final = {_FLOAT: {2: "<f", 3: "<d"}}


class _Value(NamedTuple):
    """A number, or the offset of a written value.

    Args:
        value: the number or offset.
        kind: type of the value.
        width: base-2 logarithm of its size in bytes, or of the size of a vector's elements.
    """

    value: int | float
    kind: int
    width: int


def number_map(numbers: Mapping[str, int | bool | float]) -> bytes:
    """Encode a map of numbers by name, in the order of the names.

    Like the library's own writer, use the smallest width for names and values.
    """
    buffer = bytearray()
    keys: list[_Value] = []
    values: list[_Value] = []
    for name, number in sorted(numbers.items()):
        keys.append(_Value(len(buffer), _KEY, 0))
        buffer += name.encode() + b"\0"
        values.append(_number(number))
    listed = _vector(buffer, keys, _KEY_VECTOR, None)
    mapped = _vector(buffer, values, _MAP, listed)
    width = _width(mapped, len(buffer), 0)
    _align(buffer, width)
    _write(buffer, mapped, width)
    return bytes(buffer) + bytes((_MAP << 2 | mapped.width, 1 << width))


def string_pair(first: str, second: bytes) -> bytes:
    """Encode a vector of two strings, the second of arbitrary bytes; all sizes have 32 bits."""
    buffer = bytearray()
    places = []
    for content in (first.encode(), second):
        buffer += struct.pack("<I", len(content))
        places.append(len(buffer))
        buffer += content + b"\0"
        buffer += bytes(-len(buffer) % _WIDTH)
    buffer += struct.pack("<I", len(places))
    vector = len(buffer)
    for place in places:
        # Offsets count backwards from their own position.
        buffer += struct.pack("<I", len(buffer) - place)
    kind = _STRING << 2 | _WIDTH_BITS
    buffer += bytes((kind, kind))
    buffer += bytes(-len(buffer) % _WIDTH)
    buffer += struct.pack("<I", len(buffer) - vector)
    return bytes(buffer) + bytes((_VECTOR << 2 | _WIDTH_BITS, _WIDTH))


def _number(number: int | bool | float) -> _Value:
    if isinstance(number, bool):
        return _Value(int(number), _BOOL, 0)
    if isinstance(number, int):
        return _Value(number, _INT, _unsigned_width(2 * number if number >= 0 else ~(2 * number)))
    fits = struct.unpack("<f", struct.pack("<f", number))[0] == number
    return _Value(number, _FLOAT, 2 if fits else 3)


def _vector(
    buffer: bytearray, elements: Sequence[_Value], kind: int, keys: _Value | None
) -> _Value:
    """Write a vector, or the values of a map, which refer to the vector of its keys."""
    before = 1 if keys is None else 3
    widths = [_width(e, len(buffer), before + i) for i, e in enumerate(elements)]
    if keys is not None:
        widths.append(_width(keys, len(buffer), 0))
    width = max([_unsigned_width(len(elements)), *widths])
    _align(buffer, width)
    if keys is not None:
        _write(buffer, keys, width)
        buffer += (1 << keys.width).to_bytes(1 << width, "little")
    buffer += len(elements).to_bytes(1 << width, "little")
    start = len(buffer)
    for element in elements:
        _write(buffer, element, width)
    if keys is not None:
        stored = ((e.kind, max(e.width, width) if e.kind in _INLINE else e.width) for e in elements)
        buffer += bytes(kind << 2 | bits for kind, bits in stored)
    return _Value(start, kind, width)


def _width(value: _Value, size: int, index: int) -> int:
    """Return the width of an element's offset, given the bytes and elements before it."""
    if value.kind in _INLINE:
        return value.width
    for bits in range(4):
        place = size + -size % (1 << bits) + (index << bits)
        if _unsigned_width(place - int(value.value)) <= bits:
            return bits
    raise AssertionError


def _unsigned_width(number: int) -> int:
    return next(bits for bits in range(4) if number < 1 << (8 << bits))


def _align(buffer: bytearray, width: int) -> None:
    buffer += bytes(-len(buffer) % (1 << width))


def _write(buffer: bytearray, value: _Value, width: int) -> None:
    if value.kind == _FLOAT:
        buffer += struct.pack(_FORMATS[_FLOAT][width], value.value)
    elif value.kind in _INLINE:
        buffer += int(value.value).to_bytes(1 << width, "little", signed=value.kind == _INT)
    else:
        buffer += (len(buffer) - int(value.value)).to_bytes(1 << width, "little")
