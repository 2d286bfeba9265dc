"""Read and write tables of a FlatBuffer with the layout of their format.

Source: the FlatBuffers documentation ("FlatBuffers internals"). The written bytes are the same as
those of the library's own builder.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

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
