"""Check every offset of a .tflite file before it is read.

Source: the verifier of FlatBuffers, which the runtime's Python wheel does not use.
"""

from __future__ import annotations

import struct
from typing import Final

from mobileprep.errors import CorruptFileError
from mobileprep.formats.tflite.layout import layout

_UINT32: Final = struct.Struct("<I")
_INT32: Final = struct.Struct("<i")
_UINT16: Final = struct.Struct("<H")
_BYTE: Final = struct.Struct("<B")
# Far more than real files have; in a small malicious file, shared offsets could exceed it.
_MOST_OBJECTS: Final = 1 << 24
_DEEPEST: Final = 64
IDENTIFIER: Final = b"TFL3"
"""File identifier at byte 4."""


def is_tflite(data: bytes | memoryview) -> bool:
    """Return whether data starts like a .tflite file."""
    return bytes(data[4:8]) == IDENTIFIER


def check(data: bytes | memoryview, file: str) -> None:
    """Check all offsets of a file, following the tables of the format.

    Raises:
        CorruptFileError: if an offset is invalid.
    """
    if len(data) < 8 or not is_tflite(data):
        message = "is not a .tflite file"
        raise CorruptFileError(message, "convert the model again", file)
    _Checker(data, file).root()


class _Checker:
    """A walk over a file that visits each table once for each type."""

    def __init__(self, data: bytes | memoryview, file: str) -> None:
        self._data = data
        self._file = file
        self._facts = layout()
        self._seen: set[tuple[int, str]] = set()

    def root(self) -> None:
        self._table(self._offset(0), "Model", 0)

    def _corrupt(self, position: int, what: str) -> CorruptFileError:
        where = f"{self._file}, byte {position}"
        return CorruptFileError(what, "the file is damaged: convert the model again", where)

    def _number(self, reader: struct.Struct, position: int) -> int:
        if not 0 <= position <= len(self._data) - reader.size:
            what = "an offset leads out of the file"
            raise self._corrupt(position, what)
        number: int = reader.unpack_from(self._data, position)[0]
        return number

    def _offset(self, position: int) -> int:
        """Return the target of an offset, which is never backwards."""
        distance = self._number(_UINT32, position)
        target = position + distance
        if distance == 0 or target >= len(self._data) or target % 4:
            what = "an offset leads out of the file, or to no place where anything may stand"
            raise self._corrupt(position, what)
        return target

    def _table(self, position: int, kind: str, depth: int) -> None:
        if (position, kind) in self._seen:
            return
        self._seen.add((position, kind))
        if depth > _DEEPEST or len(self._seen) > _MOST_OBJECTS:
            what = "tables are nested endlessly"
            raise self._corrupt(position, what)
        vtable = position - self._number(_INT32, position)
        slots, size = self._vtable(position, vtable)
        fields = self._facts.tables[kind]
        for number, field in enumerate(fields[:slots]):
            place = self._number(_UINT16, vtable + 4 + 2 * number)
            if not place:
                continue
            if place < 4 or place + self._width(fields, number) > size:
                named = field[0] if field else number
                what = f"the field {named!r} of a {kind} lies outside of it"
                raise self._corrupt(position, what)
            self._field(position, vtable, number, kind, depth)

    def _vtable(self, position: int, vtable: int) -> tuple[int, int]:
        """Return the maximum number of fields of a table, and its size in bytes."""
        length, size = self._number(_UINT16, vtable), self._number(_UINT16, vtable + 2)
        if length < 4 or length % 2 or vtable + length > len(self._data):
            what = "a table's list of fields is cut off"
            raise self._corrupt(vtable, what)
        if size < 4 or position + size > len(self._data):
            what = "a table is cut off"
            raise self._corrupt(position, what)
        return (length - 4) // 2, size

    def _width(self, fields: tuple[tuple[str, str] | None, ...], number: int) -> int:
        # A field without a name is the type byte of a union, or is deprecated.
        field = fields[number]
        return 1 if field is None else self._facts.width(field[1]) or 4

    def _field(self, position: int, vtable: int, number: int, table: str, depth: int) -> None:
        field = self._facts.tables[table][number]
        if field is None or self._facts.width(field[1]) is not None:
            return
        place = position + self._number(_UINT16, vtable + 4 + 2 * number)
        kind = field[1]
        target = self._offset(place)
        if kind in self._facts.unions:
            self._union(target, kind, position, vtable, number, depth)
        elif kind == "string":
            self._vector(target, 1, 1)
        elif kind.startswith("["):
            self._elements(target, kind[1:-1], depth)
        else:
            self._table(target, kind, depth + 1)

    def _union(
        self, target: int, union: str, position: int, vtable: int, number: int, depth: int
    ) -> None:
        """Check the table of a union, whose type is in the previous field."""
        place = self._number(_UINT16, vtable + 4 + 2 * (number - 1))
        tag = self._number(_BYTE, position + place) if place else 0
        names = {n: name for name, n in self._facts.unions[union].items()}
        if tag in names:
            self._table(target, names[tag], depth + 1)

    def _elements(self, target: int, kind: str, depth: int) -> None:
        width = self._facts.width(kind)
        count = self._vector(target, width or 4)
        if width is not None:
            return
        for place in range(target + 4, target + 4 + 4 * count, 4):
            if kind == "string":
                self._vector(self._offset(place), 1, 1)
            else:
                self._table(self._offset(place), kind, depth + 1)

    def _vector(self, target: int, width: int, more: int = 0) -> int:
        """Return the length of a vector; check that it and ``more`` bytes are in the file."""
        count = self._number(_UINT32, target)
        if target + 4 + count * width + more > len(self._data):
            what = f"{count} elements are declared where the file has fewer bytes"
            raise self._corrupt(target, what)
        return count
