"""Where the bytes of an answer go: counted, bounded and hashed on their way to the disk."""

from __future__ import annotations

import hashlib
from typing import BinaryIO

from mobileprep.pipeline.remote.faults import LocalError, TooLongError
from mobileprep.pipeline.remote.time_left import TimeLeft


class Sink:
    """Takes the bytes of one entry.

    Args:
        stream: where they are written.
        limit: the most that are taken.
        time_left: is told how many came.
    """

    def __init__(self, stream: BinaryIO, limit: int, time_left: TimeLeft) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self.limit = limit
        self.time_left = time_left
        self.size = 0

    def write(self, block: bytes) -> None:
        """Take the next bytes.

        Raises:
            TooLongError: they are more than the limit.
            LocalError: they cannot be written here.
        """
        self.expect(self.size + len(block))
        self.size += len(block)
        self.time_left.moved(len(block))
        self._digest.update(block)
        try:
            self._stream.write(block)
        except OSError as error:
            raise LocalError(error.strerror or str(error)) from error

    def expect(self, size: int) -> None:
        """Hear how many bytes will come in all, before any is read.

        Raises:
            TooLongError: they would be more than the limit.
        """
        if size > self.limit:
            raise TooLongError

    @property
    def sha256(self) -> str:
        """The hex digest of what came."""
        return self._digest.hexdigest()
