"""Identify a file by its content: a model, part of a checkpoint, or a foreign format."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final, Literal

from mobileprep.core.files import unreadable
from mobileprep.core.paths import PROBE, Foreign, foreign_format, opened
from mobileprep.errors import CorruptFileError
from mobileprep.formats.checkpoint_state import is_state_file
from mobileprep.formats.kinds import kind_of
from mobileprep.formats.mapped_file import map_file
from mobileprep.formats.memmapped import ends_as_package
from mobileprep.formats.sstable import MAGIC

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
    """Identify a file; None for unknown content.

    Args:
        path: a file, whatever its name ends in.

    Raises:
        CorruptFileError: it is missing, unreadable, no regular file, or empty.
    """
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
    """The first and the last bytes of a file."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            message = "is no regular file"
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
