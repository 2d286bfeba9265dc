"""Interfaces of remote caches and of their backends, which store named bytes."""

from __future__ import annotations

import hashlib
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final, Literal, Protocol, TypeAlias, TypeVar

Kind: TypeAlias = Literal["cas", "ac"]
KINDS: Final[tuple[Kind, ...]] = ("cas", "ac")
_KEY = re.compile(r"[0-9a-f]{64}\Z")


class Remote(Protocol):
    """A remote cache. Its methods do not raise errors for remote problems."""

    def fetch(self, kind: Kind, key: str, target: Path, *, limit: int) -> bool:
        """Download an entry to the new file ``target``; return False on failure.

        Objects are verified against their digest. The caller must validate records. On failure,
        ``target`` does not exist.

        Args:
            kind: ``cas`` for objects by digest, ``ac`` for records by fingerprint.
            key: digest or fingerprint.
            target: file to create.
            limit: maximum number of bytes.
        """
        ...

    def has(self, kind: Kind, key: str, size: int | None = None) -> bool:
        """Return whether the cache reports an entry, of this size if both sides know it."""
        ...

    def send(self, kind: Kind, key: str, source: Path) -> bool:
        """Upload a file; return False if the cache is read-only or the upload fails.

        Objects that already exist are not uploaded again; records are.
        """
        ...

    def stop(self) -> None:
        """Abort all transfers, and do nothing from now on."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """The distinct warnings so far, one sentence each."""
        ...


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

    def break_off(self) -> None:
        """Let pending transfers fail immediately, if the backend supports it."""
        ...


def entry_name(kind: Kind, key: str) -> str | None:
    """Return the path of an entry below the URL of the cache, or None if the key is invalid."""
    return f"{kind}/{key}" if kind in KINDS and _KEY.match(key) else None


T = TypeVar("T")

CONNECT_SECONDS: Final = 3.0
SILENT_SECONDS: Final = 10.0
# At lower rates, running a stage is usually faster than downloading its outputs.
_LEAST_RATE: Final = 256 << 10


def seconds_for(size: int) -> float:
    """Return the maximum transfer time for a number of bytes."""
    return size / _LEAST_RATE


class TimeLeft:
    """The time budget of a transfer.

    It starts with ``SILENT_SECONDS`` and grows by one second for each 256 KiB of transferred
    content. Headers, and other data that a server may send forever, do not extend it.

    Args:
        at_most: initial budget in seconds, if it is less than ``SILENT_SECONDS``.
    """

    def __init__(self, at_most: float = math.inf) -> None:
        self._until = time.monotonic() + min(SILENT_SECONDS, at_most)

    def moved(self, size: int) -> None:
        """Extend the budget after transferring bytes of the entry."""
        self._until += seconds_for(size)

    def remaining(self) -> float:
        """Return the remaining seconds.

        Raises:
            TimeoutError: the budget is used up.
        """
        seconds = self._until - time.monotonic()
        if seconds <= 0:
            message = "too slow"
            raise TimeoutError(message)
        return seconds

    def bytes_due(self) -> int:
        """Return the number of bytes that the minimum rate transfers in the remaining time."""
        return max(0, int((self._until - time.monotonic()) * _LEAST_RATE))

    def wait(self) -> float:
        """Return the timeout for the next bytes in seconds; raises like ``remaining``."""
        return min(self.remaining(), SILENT_SECONDS)


def within(seconds: float, work: Callable[[], T]) -> T:
    """Call a function that has no timeout of its own, such as a name lookup.

    On a timeout, the call continues in a daemon thread.

    Raises:
        TimeoutError: the call took longer than ``seconds``.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        message = "too slow"
        raise TimeoutError(message)
    return results[0]


Ends: TypeAlias = Literal["nothing", "taking", "sending", "all"]


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


class WrongBytesError(RemoteError):
    """The content of an entry is wrong; uploading it again repairs it."""


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
