"""Model metadata for the Task Library: a flatbuffer, and files appended to the model."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from mobileprep.formats.tflite.flatbuffer import FlatBufferWriter
from mobileprep.formats.tflite.layout import FormatFacts, metadata_layout

ENTRY: Final = "TFLITE_METADATA"
"""Name of the metadata entry of a .tflite file with the description."""

_IDENTIFIER: Final = b"M001"
# Zip archives cannot store earlier times.
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_READABLE: Final = 0o644 << 16


class DescriptionTable(NamedTuple):
    """A table of the metadata format.

    Args:
        kind: name of the table type.
        fields: values by name; a union is represented by its table.
    """

    kind: str
    fields: Mapping[str, FieldValue]


FieldValue: TypeAlias = (
    "str | int | DescriptionTable | Sequence[float] | Sequence[str] | Sequence[DescriptionTable]"
)


def description_bytes(model: DescriptionTable) -> bytes:
    """Encode a ``ModelMetadata`` table, in which names represent the values of enumerations."""
    facts = metadata_layout()
    file = FlatBufferWriter(facts)
    return bytes(file.finished(_table(file, facts, model), _IDENTIFIER))


def with_files(model: bytes | memoryview, files: Mapping[str, str]) -> bytes:
    """Append strings to a .tflite file as an archive of uncompressed files.

    Offsets of the archive count from the start of the file, so that it is valid in both formats.
    """
    if not files:
        return bytes(model)
    stream = io.BytesIO()
    stream.write(model)
    with zipfile.ZipFile(stream, "a", zipfile.ZIP_STORED) as archive:
        for name, text in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.create_system = 3
            entry.external_attr = _READABLE
            archive.writestr(entry, text.encode())
    return stream.getvalue()


def _table(file: FlatBufferWriter, facts: FormatFacts, table: DescriptionTable) -> int:
    """Write a table after its contents, and return its offset."""
    fields: dict[str, int] = {}
    for field in facts.tables[table.kind]:
        value = None if field is None else table.fields.get(field[0])
        if field is None or value is None:
            continue
        name, kind = field
        if kind in facts.unions:
            assert isinstance(value, DescriptionTable)
            fields[f"{name}_type"] = facts.unions[kind][value.kind]
        fields[name] = _value(file, facts, kind, value)
    return file.table(table.kind, **fields)


def _value(file: FlatBufferWriter, facts: FormatFacts, kind: str, value: FieldValue) -> int:
    """Return a number, or the offset of a written value."""
    if isinstance(value, int):
        return value
    if isinstance(value, DescriptionTable):
        return _table(file, facts, value)
    if isinstance(value, str):
        return facts.number(kind, value) if kind in facts.enums else file.text(value)
    if kind == "[float]":
        return file.array(np.array(value, np.float32))
    return file.offsets([_value(file, facts, kind[1:-1], item) for item in value])  # type: ignore[arg-type]
