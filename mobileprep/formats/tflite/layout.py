"""Layout of the format: fields of its tables, and numbers of its enumerations."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from mobileprep.errors import InternalError

Field = tuple[str, str]
"""Name and type of a field: ``int``, ``[float]``, ``string``, a table, a union, or ``[table]``."""

Slot = tuple[int, struct.Struct | None]
"""Id of a field and the format of its number; None for an offset to its value."""

_CODES: Final[Mapping[str, str]] = {
    "byte": "b",
    "ubyte": "B",
    "bool": "?",
    "short": "h",
    "ushort": "H",
    "int": "i",
    "uint": "I",
    "long": "q",
    "ulong": "Q",
    "float": "f",
    "double": "d",
}
_STRUCTS: Final = {kind: struct.Struct(f"<{code}") for kind, code in _CODES.items()}

_WIDE_ENUMS: Final = frozenset({"BuiltinOperator"})


class FormatFacts(Struct, frozen=True):
    """The layout that ``tools/generate_tflite.py`` extracts from the schema.

    Args:
        tables: fields of each table by id; None if nothing is stored.
        enums: numbers of enumerations by name.
        unions: numbers of the tables of unions by name.
        defaults: default values that are not 0, by table and field.
        slots: storage of fields, by table and name.
    """

    tables: Mapping[str, tuple[Field | None, ...]]
    enums: Mapping[str, Mapping[str, int]]
    unions: Mapping[str, Mapping[str, int]]
    defaults: Mapping[str, Mapping[str, int]]
    slots: Mapping[str, Mapping[str, Slot]]

    def slot(self, table: str, name: str) -> Slot:
        """Return the id and storage of a field."""
        slot = self.slots[table].get(name)
        if slot is None:
            message = f"{table} of the .tflite format has no field {name!r}"
            raise InternalError(message)
        return slot

    def default(self, table: str, name: str) -> int:
        """Return the value of a number that is not stored."""
        return self.defaults.get(table, {}).get(name, 0)

    def number(self, enum: str, name: str) -> int:
        """Return the number of an enumeration's name."""
        value = self.enums[enum].get(name)
        if value is None:
            message = f"{enum} of the .tflite format has no {name!r}"
            raise InternalError(message)
        return value

    def name(self, enum: str, number: int) -> str:
        """Return the name of an enumeration's number; the number as a string if it has no name."""
        return _names(enum).get(number, str(number))

    def name_of_table(self, number: int) -> str:
        """Return the table of the union ``BuiltinOptions`` with this number."""
        tables = self.unions["BuiltinOptions"].items()
        return next(name for name, value in tables if value == number)

    def field(self, table: str, name: str) -> Field:
        """Return the name and type of a field."""
        field = self.tables[table][self.slot(table, name)[0]]
        assert field is not None
        return field

    def width(self, kind: str) -> int | None:
        """Return the size of a number or an enumeration in bytes; None for other types."""
        stored = _stored(kind, self.enums)
        return None if stored is None else stored.size


@lru_cache(maxsize=1)
def layout() -> FormatFacts:
    """Return the layout of .tflite files, read once."""
    return _read("layout.json")


@lru_cache(maxsize=1)
def metadata_layout() -> FormatFacts:
    """Return the layout of model metadata, read once."""
    return _read("metadata_layout.json")


def _read(name: str) -> FormatFacts:
    path = Path(__file__).parent / name
    data = json.loads(path.read_text(encoding="utf-8"))
    tables = {
        name: tuple(None if f is None else (f[0], f[1]) for f in fields)
        for name, fields in data["tables"].items()
    }
    enums, unions = data["enums"], data["unions"]
    slots: dict[str, dict[str, Slot]] = {}
    for table, fields in tables.items():
        slots[table] = table_slots = {}
        for index, field in enumerate(fields):
            if field is not None:
                table_slots[field[0]] = (index, _stored(field[1], enums))
                if field[1] in unions:
                    # The type field of a union has no name in the schema, and the previous id.
                    table_slots[f"{field[0]}_type"] = (index - 1, _STRUCTS["ubyte"])
    return FormatFacts(tables, enums, unions, data["defaults"], slots)


def _stored(kind: str, enums: Mapping[str, object]) -> struct.Struct | None:
    """Return the storage of a number or an enumeration; None for other types."""
    if kind not in enums:
        return _STRUCTS.get(kind)
    if kind.startswith("Stablehlo"):
        return _STRUCTS["uint"]
    return _STRUCTS["int" if kind in _WIDE_ENUMS else "byte"]


@lru_cache(maxsize=32)
def _names(enum: str) -> Mapping[int, str]:
    return {number: name for name, number in layout().enums[enum].items()}
