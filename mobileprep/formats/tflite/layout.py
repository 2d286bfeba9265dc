"""Facts of the format: the fields of its tables, and the numbers of its enumerations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from mobileprep.core.frozen import dataclass
from mobileprep.errors import InternalError

Field = tuple[str, str]
"""A field's name and type: ``int``, ``[float]``, ``string``, a table, a union or ``[table]``."""

WIDTHS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("byte", "ubyte", "bool"), 1),
    **dict.fromkeys(("short", "ushort"), 2),
    **dict.fromkeys(("int", "uint", "float"), 4),
    **dict.fromkeys(("long", "ulong", "double"), 8),
}
"""Bytes of each plain number."""

_WIDE_ENUMS: Final = frozenset({"BuiltinOperator"})


@dataclass(frozen=True)
class FormatFacts:
    """Facts that ``tools/generate_tflite.py`` takes from the schema.

    Args:
        tables: for each field id its field, None where nothing is stored.
        enums: numbers by name.
        unions: numbers of tables by name.
    """

    tables: Mapping[str, tuple[Field | None, ...]]
    enums: Mapping[str, Mapping[str, int]]
    unions: Mapping[str, Mapping[str, int]]

    def number(self, enum: str, name: str) -> int:
        """The number of a name.

        Raises:
            InternalError: the enumeration has no such name.
        """
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
        """A field of a table.

        Raises:
            InternalError: the table has no such field.
        """
        for found in self.tables[table]:
            if found is not None and found[0] == name:
                return found
        message = f"{table} of the .tflite format has no field {name!r}"
        raise InternalError(message)

    def width(self, kind: str) -> int | None:
        """The bytes of a number or an enumeration, None for what is neither."""
        if kind in self.enums:
            return 4 if kind in _WIDE_ENUMS or kind.startswith("Stablehlo") else 1
        return WIDTHS.get(kind)


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
    return FormatFacts(tables, data["enums"], data["unions"])


@lru_cache(maxsize=32)
def _names(enum: str) -> Mapping[int, str]:
    return {number: name for name, number in layout().enums[enum].items()}
