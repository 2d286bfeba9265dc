"""A store in a folder that machines share, at a ``file:///`` address."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mobileprep.core.files import atomic_writer
from mobileprep.errors import ArtifactError
from mobileprep.pipeline.remote.faults import RemoteError
from mobileprep.pipeline.remote.outgoing import file_blocks, file_size
from mobileprep.pipeline.remote.sink import Sink
from mobileprep.pipeline.remote.time_left import TimeLeft

_FOLDER_BLOCK = 1 << 18


class FolderBackend:
    """Entries as files of a folder that must be there: a share that is not mounted is told.

    What keeps one entry from being read, such as another user's rights, says nothing of the others.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str, sink: Sink) -> bool:
        """The bytes of a file."""
        with self._opened(name) as stream:
            if stream is None:
                return False
            sink.expect(os.fstat(stream.fileno()).st_size)
            while block := stream.read(_FOLDER_BLOCK):
                sink.write(block)
            return True

    def has(self, name: str, size: int | None, time_left: TimeLeft) -> bool:
        """Whether there is such a file."""
        with self._opened(name) as stream:
            return stream is not None and size in (None, os.fstat(stream.fileno()).st_size)

    def write(self, name: str, source: Path, time_left: TimeLeft) -> None:
        """Copy a file there, and rename it when it is whole."""
        self._look()
        blocks = file_blocks(name, source, file_size(source), time_left)
        try:
            with atomic_writer(self._folder / name, follow=False) as stream:
                stream.writelines(blocks)
        except ArtifactError as error:
            raise RemoteError(error.message, ends="sending") from error

    def break_off(self) -> None:
        """Nothing: a file system does not let go of who waits for it."""

    def _look(self) -> None:
        """Make sure that the folder is there."""
        try:
            self._folder.stat()
        except OSError as error:
            message = f"cannot be read: {error.strerror or error}"
            raise RemoteError(message, ends="all") from error

    @contextmanager
    def _opened(self, name: str) -> Iterator[BinaryIO | None]:
        """A regular file; None for anything else."""
        self._look()
        try:
            number = _descriptor(self._folder / name)
            if number is None:
                yield None
                return
            with open(number, "rb") as stream:  # noqa: PTH123 - a descriptor
                yield stream
        except OSError as error:
            message = f"has an entry that cannot be read: {error.strerror or error}"
            raise RemoteError(message) from error


def _descriptor(path: Path) -> int | None:
    """A regular file, opened; None for anything else: a FIFO would be waited for."""
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
        return os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)) if is_file else None
    except FileNotFoundError:
        return None
