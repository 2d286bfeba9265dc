"""The signatures of a session bundle, in which TensorFlow Serving's exporter wrote models first.

They are a ``tensorflow.serving.Signatures`` message in a collection of the MetaGraph; its fields
are those of ``contrib/session_bundle/manifest.proto`` in TensorFlow 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from mobileprep.errors import CorruptFileError
from mobileprep.formats.wire import BYTES, Buffer, Cursor
from mobileprep.freezing.model import Signature, TensorSpec

BUNDLE_COLLECTION: Final = "serving_signatures"
_DEFAULT: Final = "serving_default"
_REGRESSION, _CLASSIFICATION, _GENERIC = 1, 2, 3


def bundle_signatures(messages: Iterable[bytes]) -> dict[str, Signature]:
    """The one signature that a session bundle's come to; none where they cannot be read.

    The pair of named signatures ``inputs`` and ``outputs`` takes and gives tensors by name, as
    apps do, and comes before the default one, which takes serialized examples.
    """
    for message in messages:
        try:
            found = _read(message)
        except (CorruptFileError, UnicodeDecodeError):
            continue  # the model may do without
        if found is not None:
            return {_DEFAULT: found}
    return {}


def _read(message: bytes) -> Signature | None:
    named: dict[str, dict[str, TensorSpec]] = {}
    default: Signature | None = None
    for number, content in _fields(message):
        if number == 1:
            default = _default(content)
        elif number == 2:
            name, value = _entry(content)
            for kind, generic in _fields(value):
                if kind == _GENERIC:
                    named[name] = dict(_bindings(generic))
    if named.get("inputs") and named.get("outputs"):
        return Signature(named["inputs"], named["outputs"])
    return default


def _default(content: Buffer) -> Signature | None:
    for kind, fields in _fields(content):
        tensors = {number: _binding(value) for number, value in _fields(fields)}
        if kind == _REGRESSION:
            outputs = {"outputs": tensors.get(2)}
        elif kind == _CLASSIFICATION:
            outputs = {"classes": tensors.get(2), "scores": tensors.get(3)}
        else:
            continue
        given = {name: spec for name, spec in outputs.items() if spec is not None}
        if 1 in tensors and given:
            return Signature({"inputs": tensors[1]}, given)
    return None


def _bindings(generic: Buffer) -> Iterator[tuple[str, TensorSpec]]:
    for _, entry in _fields(generic):
        name, value = _entry(entry)
        yield name, _binding(value)


def _binding(content: Buffer) -> TensorSpec:
    return TensorSpec("".join(bytes(v).decode() for number, v in _fields(content) if number == 1))


def _entry(content: Buffer) -> tuple[str, Buffer]:
    """A map's entry: its key and its value."""
    fields = dict(_fields(content))
    return bytes(fields.get(1, b"")).decode(), fields.get(2, b"")


def _fields(content: Buffer) -> Iterator[tuple[int, Buffer]]:
    cursor = Cursor(content)
    while cursor:
        tag = cursor.varint()
        if tag & 7 != BYTES:
            msg = "a signature has a field that is no message"
            raise cursor.corrupt(msg)
        yield tag >> 3, cursor.take(cursor.varint())
