"""The files of a folder that hold samples."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from mobileprep.core.files import unreadable


def files_below(root: Path, suffixes: Collection[str] = ()) -> list[str]:
    """The names of the files below a folder, with ``/``, sorted.

    Hidden files and folders, whose names start with a dot, are passed over, and folders that a
    link leads to.

    Args:
        root: the folder.
        suffixes: the ends of names that count, in lower case; empty for any.

    Raises:
        CorruptFileError: the folder is not there, or cannot be read.
    """
    found: list[str] = []
    for folder, folders, names in os.walk(root, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        below = Path(folder).relative_to(root)
        found += [
            (below / name).as_posix()
            for name in names
            if not name.startswith(".") and (not suffixes or Path(name).suffix.lower() in suffixes)
        ]
    return sorted(found)


def _refuse(error: OSError) -> None:
    raise unreadable(Path(str(error.filename)), error) from error
