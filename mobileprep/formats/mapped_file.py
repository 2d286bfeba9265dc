"""Files mapped into memory, read from disk only where they are touched."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final

from mobileprep.core.files import unreadable
from mobileprep.core.paths import opened

_SMALL: Final = 4 << 20
"""To read so many bytes takes a millisecond."""


def view_file(path: Path) -> memoryview:
    """A file's bytes, read-only: those of a small one read at once, those of others mapped.

    Whoever cuts a file short in place while it is mapped may end this process; of one that was
    read there is a copy.

    Raises:
        CorruptFileError: missing or unreadable.
    """
    try:
        with opened(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            if 0 < size <= _SMALL:  # a device tells none, and may never end
                return memoryview(stream.read(size))
    except OSError as error:
        raise unreadable(path, error) from error
    return map_file(path)


def map_file(path: Path) -> memoryview:
    """A file's bytes, read-only, read when touched; empty files give an empty view.

    The map lives as long as a view on it.

    Raises:
        CorruptFileError: missing or unreadable.
    """
    try:
        with opened(path) as stream:
            if not stream.seek(0, 2):
                return memoryview(b"")
            return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise unreadable(path, error) from error


def release_pages(mapped: mmap.mmap) -> None:
    """Let a map's pages no longer count as this process's; the system's cache may keep them.

    Args:
        mapped: of a file, and read-only: of others changes would be lost.
    """
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)
