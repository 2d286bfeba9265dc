"""A model's description for the task library: a flatbuffer, and files behind the model."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from mobileprep.formats.tflite.layout import FormatFacts, metadata_layout
from mobileprep.formats.tflite.library import flatbuffers_module

ENTRY: Final = "TFLITE_METADATA"
"""The name of the metadata of a .tflite file that holds a description."""

_IDENTIFIER: Final = b"M001"
# Archives hold no time before it.
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_READABLE: Final = 0o644 << 16


class DescriptionTable(NamedTuple):
    """A table of the format.

    Args:
        kind: its name.
        fields: values by name; a table of a union stands for itself.
    """

    kind: str
    fields: Mapping[str, FieldValue]


FieldValue: TypeAlias = (
    "str | int | DescriptionTable | Sequence[float] | Sequence[str] | Sequence[DescriptionTable]"
)


def description_bytes(model: DescriptionTable) -> bytes:
    """The bytes of a ``ModelMetadata``; enumerations are given by name.

    Raises:
        UnsupportedError: flatbuffers is not installed.
    """
    builder = flatbuffers_module().Builder(1024)
    root = _Writer(builder, metadata_layout()).table(model)
    builder.Finish(root, _IDENTIFIER)
    return bytes(builder.Output())


def with_files(model: bytes | memoryview, files: Mapping[str, str]) -> bytes:
    """A .tflite file with texts behind it, as an archive of files that are not compressed.

    Offsets of the archive count from the file's beginning, so that it is both at once.
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


class _Writer:
    """Writes tables from the inside out, as flatbuffers are."""

    def __init__(self, builder: Any, facts: FormatFacts) -> None:  # noqa: ANN401 - no types
        self._builder = builder
        self._facts = facts

    def table(self, given: DescriptionTable) -> int:
        """Write a table; where it is."""
        known = self._facts.tables[given.kind]
        slots: list[tuple[int, str, int]] = []
        for number, field in enumerate(known):
            value = None if field is None else given.fields.get(field[0])
            if field is None or value is None:
                continue
            kind = field[1]
            if kind in self._facts.unions:
                assert isinstance(value, DescriptionTable)
                slots.append((number - 1, "ubyte", self._facts.unions[kind][value.kind]))
            slots.append((number, kind, self._value(kind, value)))
        self._builder.StartObject(len(known))
        for number, kind, found in slots:
            self._slot(number, kind, found)
        return int(self._builder.EndObject())

    def _value(self, kind: str, value: FieldValue) -> int:
        """A number, or where the value stands that was written."""
        if isinstance(value, int):
            return value
        if isinstance(value, DescriptionTable):
            return self.table(value)
        if isinstance(value, str):
            if kind in self._facts.enums:
                return self._facts.number(kind, value)
            return int(self._builder.CreateString(value))
        if kind == "[float]":
            return int(self._builder.CreateNumpyVector(np.array(value, np.float32)))
        return self._vector([self._value(kind[1:-1], item) for item in value])  # type: ignore[arg-type]

    def _vector(self, offsets: Sequence[int]) -> int:
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        made: int = self._builder.EndVector()
        return made

    def _slot(self, number: int, kind: str, value: int) -> None:
        builder = self._builder
        if kind in self._facts.enums:
            builder.PrependInt8Slot(number, value, 0)
        elif kind == "ubyte":
            builder.PrependUint8Slot(number, value, 0)
        elif kind in ("int", "uint"):
            prepend = builder.PrependInt32Slot if kind == "int" else builder.PrependUint32Slot
            prepend(number, value, 0)
        else:
            builder.PrependUOffsetTRelativeSlot(number, value, 0)
