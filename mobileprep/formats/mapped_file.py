"""Files mapped into memory, read from disk only where they are touched."""

from __future__ import annotations

import mmap
from pathlib import Path

from mobileprep.fsio import unreadable
from mobileprep.regular_files import opened


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
