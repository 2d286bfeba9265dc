"""Detect GraphDefs, MetaGraphDefs, SavedModels, and other files by their content."""

from __future__ import annotations

import codecs
import os
import re
import stat
from pathlib import Path
from typing import Final, Literal

from mobileprep.core.files import map_file, unreadable
from mobileprep.core.paths import PROBE, Foreign, foreign_format, opened, refuse_foreign
from mobileprep.errors import CorruptFileError
from mobileprep.formats.checkpoint_files import is_state_file
from mobileprep.formats.memmapped import ends_as_package
from mobileprep.formats.sstable import MAGIC
from mobileprep.formats.wire import BYTES, VARINT, Buffer, Cursor

Kind = Literal["GraphDef", "MetaGraphDef", "SavedModel"]

_TEXT_PROBE: Final = 512
# Unambiguous for each byte, so that matching takes linear time.
_FIRST_FIELD: Final = re.compile(rb"(?:\s|#[^\n]*(?:\n|\Z)|\xef\xbb\xbf)*([A-Za-z_]\w*)")
_TEXT_KINDS: Final[dict[bytes, Kind]] = {
    b"node": "GraphDef",
    b"library": "GraphDef",
    b"versions": "GraphDef",
    b"version": "GraphDef",
    b"meta_info_def": "MetaGraphDef",
    b"graph_def": "MetaGraphDef",
    b"saver_def": "MetaGraphDef",
    b"collection_def": "MetaGraphDef",
    b"signature_def": "MetaGraphDef",
    b"saved_model_schema_version": "SavedModel",
    b"meta_graphs": "SavedModel",
}
_HINTS: Final[dict[Kind, str]] = {
    "GraphDef": "in a recipe, name it as `frozen:` or `graph:`; for `mobileprep freeze`, as "
    "`--input_graph`",
    "MetaGraphDef": "in a recipe, name it as `meta_graph:`; for a verb that takes only frozen "
    "graphs, run `mobileprep freeze --input_meta_graph=FILE` first",
    "SavedModel": "in a recipe, name its directory as `saved_model:`; for a verb that takes only "
    "frozen graphs, run `mobileprep freeze --input_saved_model_dir=DIR` first",
}
# Field number of a NodeDef's op. The fields of a MetaInfoDef have other wire types, or content that
# is not an op name.
_OP: Final = 2
_OP_NAME: Final = re.compile(rb"[A-Za-z_0-9.>:-]+\Z")


def looks_like_text(data: Buffer) -> bool:
    """Return whether a file starts with protobuf text instead of a binary field.

    The start of a binary message contains control characters, unlike text: in each node, there is
    one before the op. If a name is so long that the op is not in the probe, its length takes two
    bytes, the first of which does not occur at the start of text.
    """
    head = bytes(data[:_TEXT_PROBE])
    if head.lstrip()[:1] > b"\x7f" and not head.startswith(codecs.BOM_UTF8):
        return False
    return all(byte >= 0x20 or byte in b"\t\n\r" for byte in head)


def kind_of(data: Buffer) -> Kind | None:
    """Return the message type that the bytes start with, binary or text; None if it is unknown.

    A memory-mapped model is a GraphDef, regardless of its first bytes.
    """
    if ends_as_package(data):
        return "GraphDef"
    if foreign_format(data[:PROBE]) is not None:
        return None
    if looks_like_text(data):
        match = _FIRST_FIELD.match(data)
        return _TEXT_KINDS.get(match[1]) if match else None
    try:
        return _binary_kind(Cursor(data))
    except CorruptFileError:
        return None


def expect_kind(data: Buffer, expected: Kind, file: str) -> None:
    """Reject a foreign format, and bytes that start as another kind of message."""
    refuse_foreign(data[:PROBE], file)
    kind = kind_of(data)
    if kind not in (None, expected):
        message = f"is a {kind}, not a {expected}"
        raise CorruptFileError(message, _HINTS[kind or expected], file)


def _binary_kind(cursor: Cursor) -> Kind | None:
    tag = cursor.varint()
    if tag == 1 << 3 | VARINT:
        return "SavedModel"
    if tag == 2 << 3 | BYTES or tag == 4 << 3 | BYTES:
        return "GraphDef"  # A library or versions only come first if there are no nodes.
    if tag != 1 << 3 | BYTES:
        return None
    length = cursor.varint()
    first = Cursor(cursor.data, cursor.position, cursor.position + length)
    return "GraphDef" if _is_node(first) else "MetaGraphDef"


def _is_node(cursor: Cursor) -> bool:
    """Return whether the first fields of a message are those of a NodeDef: a name, then an op."""
    while cursor:
        tag = cursor.varint()
        if tag & 7 != BYTES:
            return False
        content = cursor.take(cursor.varint())
        if tag >> 3 == _OP:
            return _OP_NAME.match(content) is not None
    return False


FileKind = Literal[
    "GraphDef",
    "MetaGraphDef",
    "SavedModel",
    "checkpoint index",
    "checkpoint table",
    "checkpoint state",
    "checkpoint data",
]

_DATA: Final = re.compile(r".+\.data-\d{5}-of-\d{5}\Z", re.DOTALL)


def file_kind(path: Path) -> FileKind | Foreign | None:
    """Identify a file; None for unknown content."""
    head, tail = _ends(path)
    if tail.endswith(MAGIC):
        return "checkpoint index" if path.name.endswith(".index") else "checkpoint table"
    if _DATA.match(path.name):
        return "checkpoint data"
    if ends_as_package(tail):
        return "GraphDef"
    foreign = foreign_format(head)
    if foreign is not None:
        return foreign
    if b"\0" not in head and is_state_file(path):
        return "checkpoint state"
    return kind_of(map_file(path))


def _ends(path: Path) -> tuple[bytes, bytes]:
    """Return the first and the last bytes of a file."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            message = "is not a regular file"
            raise CorruptFileError(message, "name a model's file or folder", str(path))
        with opened(path) as stream:
            head = stream.read(PROBE)
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(size - PROBE, 0))
            tail = stream.read(PROBE)
    except OSError as error:
        raise unreadable(path, error) from error
    if not head:
        message = "is empty"
        raise CorruptFileError(message, "export the model again", str(path))
    return head, tail
