"""Interface of the backends of a remote cache, which store named bytes."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final, Literal, Protocol, TypeAlias

Kind: TypeAlias = Literal["cas", "ac"]
KINDS: Final[tuple[Kind, ...]] = ("cas", "ac")
_KEY = re.compile(r"[0-9a-f]{64}\Z")


class Backend(Protocol):
    """Access to a remote cache. Methods convert their library's errors to RemoteError."""

    def read(self, name: str, sink: Sink) -> bool:
        """Write an entry's content to the sink; return False if it does not exist."""
        ...

    def has(self, name: str, size: int | None, time_left: TimeLeft) -> bool:
        """Return whether an entry exists, of this size if both sides know it."""
        ...

    def write(self, name: str, source: Path, time_left: TimeLeft) -> None:
        """Upload a file atomically."""
        ...


def entry_name(kind: Kind, key: str) -> str | None:
    """Return the path of an entry below the URL of the cache, or None if the key is invalid."""
    return f"{kind}/{key}" if kind in KINDS and _KEY.match(key) else None


CONNECT_SECONDS: Final = 3.0
SILENT_SECONDS: Final = 10.0
# At lower rates, running a stage is usually faster than downloading its outputs.
_LEAST_RATE: Final = 256 << 10


class TimeLeft:
    """The time budget of an operation.

    It starts with ``SILENT_SECONDS`` and grows by one second for each 256 KiB of transferred
    content.
    """

    def __init__(self) -> None:
        self.transfer_seconds = 0.0
        """Time that the content transferred so far may take."""
        self._until = time.monotonic() + SILENT_SECONDS

    def moved(self, size: int) -> None:
        """Extend the budget after transferring bytes of the entry; raises like ``remaining``."""
        self.transfer_seconds += size / _LEAST_RATE
        self.remaining()

    def remaining(self) -> float:
        """Return the remaining seconds.

        Raises:
            RemoteError: the budget is used up.
        """
        seconds = self._until + self.transfer_seconds - time.monotonic()
        if seconds <= 0:
            message = "is too slow"
            raise RemoteError(message)
        return seconds

    def wait(self) -> float:
        """Return the timeout for the next bytes in seconds; raises like ``remaining``."""
        return min(self.remaining(), SILENT_SECONDS)


Ends: TypeAlias = Literal["nothing", "sending", "all"]


class RemoteError(Exception):
    """A failure of a remote cache.

    Args:
        message: continuation of "the remote store URL ...".
        again: whether a retry may succeed.
        ends: operations to disable for the rest of the build.
        after: seconds to wait before a retry, as requested by the server.
    """

    def __init__(
        self, message: str, *, again: bool = False, ends: Ends = "nothing", after: float = 0.0
    ) -> None:
        super().__init__(message)
        self.message = message
        self.again = again
        self.ends = ends
        self.after = after


class LocalError(Exception):
    """A local failure, such as a full disk or a damaged object."""


class TooLongError(Exception):
    """An entry is larger than its limit."""


class Sink:
    """Receiver of an entry's content.

    Args:
        stream: file to write to.
        limit: maximum number of bytes.
        time_left: time budget to extend.
    """

    def __init__(self, stream: BinaryIO, limit: int, time_left: TimeLeft) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self.limit = limit
        self.time_left = time_left
        self.size = 0

    def write(self, block: bytes) -> None:
        """Write the next bytes.

        Raises:
            TooLongError: the content exceeds the limit.
            LocalError: the file cannot be written.
            RemoteError: the time budget is used up.
        """
        self.expect(self.size + len(block))
        self.size += len(block)
        self._digest.update(block)
        try:
            self._stream.write(block)
        except OSError as error:
            raise LocalError(error.strerror or str(error)) from error
        self.time_left.moved(len(block))

    def expect(self, size: int) -> None:
        """Check the announced total size before any byte is read."""
        if size > self.limit:
            raise TooLongError

    @property
    def sha256(self) -> str:
        """SHA-256 of the received bytes in hexadecimal."""
        return self._digest.hexdigest()


_BLOCK = 1 << 18


def file_size(source: Path) -> int:
    """Return the size of a file to upload."""
    try:
        return source.stat().st_size
    except OSError as error:
        raise LocalError(error.strerror or str(error)) from error


def file_blocks(name: str, source: Path, size: int, time_left: TimeLeft) -> Iterator[bytes]:
    """Yield the content of a file for the entry ``name``.

    The last block follows only after all content is verified: a receiver that expects ``size``
    bytes discards a shorter upload.

    Raises:
        LocalError: the file is damaged, changed meanwhile, or cannot be read.
    """
    kind, key = PurePosixPath(name).parts
    digest, remaining = hashlib.sha256(), size
    try:
        with source.open("rb") as stream:
            while remaining:
                block = stream.read(min(_BLOCK, remaining))
                digest.update(block)
                remaining -= len(block)
                if not block or (not remaining and os.fstat(stream.fileno()).st_size != size):
                    message = f"{source.name} changed while it was sent"
                    raise LocalError(message)
                if not remaining and kind == "cas" and digest.hexdigest() != key:
                    message = f"the object {key} is damaged"
                    raise LocalError(message)
                yield block
                time_left.moved(len(block))
    except OSError as error:
        raise LocalError(error.strerror or str(error)) from error
