"""Facts of the format: the fields of its tables, and the numbers of its enumerations."""

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
"""A field's name and type: ``int``, ``[float]``, ``string``, a table, a union or ``[table]``."""

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
    """Facts that ``tools/generate_tflite.py`` takes from the schema.

    Args:
        tables: for each field id its field, None where nothing is stored.
        enums: numbers by name.
        unions: numbers of tables by name.
        defaults: by table, the values of fields that are not stored, where they are not 0.
        slots: by table and name.
    """

    tables: Mapping[str, tuple[Field | None, ...]]
    enums: Mapping[str, Mapping[str, int]]
    unions: Mapping[str, Mapping[str, int]]
    defaults: Mapping[str, Mapping[str, int]]
    slots: Mapping[str, Mapping[str, Slot]]

    def slot(self, table: str, name: str) -> Slot:
        """Where a field is stored, and how."""
        found = self.slots[table].get(name)
        if found is None:
            message = f"{table} of the .tflite format has no field {name!r}"
            raise InternalError(message)
        return found

    def default(self, table: str, name: str) -> int:
        """The value of a number that is not stored."""
        return self.defaults.get(table, {}).get(name, 0)

    def number(self, enum: str, name: str) -> int:
        """The number of a name."""
        found = self.enums[enum].get(name)
        if found is None:
            message = f"{enum} of the .tflite format has no {name!r}"
            raise InternalError(message)
        return found

    def name(self, enum: str, number: int) -> str:
        """The name of a number; the number as text where the format has none for it."""
        return _names(enum).get(number, str(number))

    def name_of_table(self, number: int) -> str:
        """The table of a number of the union ``BuiltinOptions``."""
        tables = self.unions["BuiltinOptions"].items()
        return next(name for name, known in tables if known == number)

    def field(self, table: str, name: str) -> Field:
        """A field of a table."""
        found = self.tables[table][self.slot(table, name)[0]]
        assert found is not None
        return found

    def width(self, kind: str) -> int | None:
        """Return the size of a number or an enumeration in bytes; None for other types."""
        stored = _stored(kind, self.enums)
        return None if stored is None else stored.size


@lru_cache(maxsize=1)
def layout() -> FormatFacts:
    """The facts of .tflite files, read once."""
    return _read("layout.json")


@lru_cache(maxsize=1)
def metadata_layout() -> FormatFacts:
    """The facts of a model's description, read once."""
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
        slots[table] = known = {}
        for index, field in enumerate(fields):
            if field is not None:
                known[field[0]] = (index, _stored(field[1], enums))
                if field[1] in unions:
                    # The number of a union's table has no name in the schema, and the id before.
                    known[f"{field[0]}_type"] = (index - 1, _STRUCTS["ubyte"])
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
