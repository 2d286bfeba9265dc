"""What a remote store is to the rest, and what lies below: a place of named bytes."""

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
    """A store that may be anywhere. None of its methods raises for what happens out there."""

    def fetch(self, kind: Kind, key: str, target: Path, *, limit: int) -> bool:
        """Write an entry to ``target``, a new file of the caller's; False where that fails.

        Bytes of the kind ``cas`` have the sha256 ``key`` then; what a record says is for the
        caller to check. After False there is no file ``target``.

        Args:
            kind: ``cas`` for objects by their digest, ``ac`` for records by their fingerprint.
            limit: the most bytes that are taken.
        """
        ...

    def has(self, kind: Kind, key: str, size: int | None = None) -> bool:
        """Whether the store says that it has an entry, of that many bytes where both sides know."""
        ...

    def send(self, kind: Kind, key: str, source: Path) -> bool:
        """Put a file there; False where the store is read-only or that fails.

        Objects that are there already are not sent again; records are.
        """
        ...

    def stop(self) -> None:
        """Break off what is on its way, and do nothing from now on."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """What went wrong so far, a sentence each, none twice."""
        ...


class Backend(Protocol):
    """One way to reach a store. Its methods raise RemoteError, and nothing else of its library."""

    def read(self, name: str, sink: Sink) -> bool:
        """Give the sink an entry's bytes; False where there is none."""
        ...

    def has(self, name: str, size: int | None, time_left: TimeLeft) -> bool:
        """Whether there is an entry, of that many bytes where the size is known on both sides."""
        ...

    def write(self, name: str, source: Path, time_left: TimeLeft) -> None:
        """Put a file's bytes there, all or nothing."""
        ...

    def break_off(self) -> None:
        """Let exchanges that wait for the store fail at once, where that can be done."""
        ...


def entry_name(kind: Kind, key: str) -> str | None:
    """The name of an entry below the store's address; None for what is no key."""
    return f"{kind}/{key}" if kind in KINDS and _KEY.match(key) else None


T = TypeVar("T")

CONNECT_SECONDS: Final = 3.0
SILENT_SECONDS: Final = 10.0
# Below this a stage is usually run again in less time than its outputs take to arrive.
_LEAST_RATE: Final = 256 << 10


def seconds_for(size: int) -> float:
    """How long so many bytes of an entry may be on their way."""
    return size / _LEAST_RATE


class TimeLeft:
    """The time that an exchange has left.

    It has ``SILENT_SECONDS``, and a second more for each 256 KiB of an entry that went over the
    line. Headers, and whatever else a server may go on with for ever, bring no time.

    Args:
        at_most: seconds to begin with, where the caller has less than ``SILENT_SECONDS``.
    """

    def __init__(self, at_most: float = math.inf) -> None:
        self._until = time.monotonic() + min(SILENT_SECONDS, at_most)

    def moved(self, size: int) -> None:
        """Note that bytes of the entry went over the line."""
        self._until += seconds_for(size)

    def left(self) -> float:
        """How many seconds the rest may take."""
        left = self._until - time.monotonic()
        if left <= 0:
            message = "too slow"
            raise TimeoutError(message)
        return left

    def bytes_due(self) -> int:
        """How many bytes of the entry come in what is left, at the least rate."""
        return max(0, int((self._until - time.monotonic()) * _LEAST_RATE))

    def wait(self) -> float:
        """How many seconds the next bytes may take; raises what ``left`` does."""
        return min(self.left(), SILENT_SECONDS)


def within(seconds: float, work: Callable[[], T]) -> T:
    """What a call gives that has no time-out of its own, such as one that looks a name up.

    A call that takes longer goes on in a thread that holds nothing up.
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
    """What a remote store did wrong.

    Args:
        message: goes on from "the remote store URL ...".
        again: whether the next try may well do better.
        ends: what need not be tried for the rest of the build.
        after: how many seconds the store asks to be left alone before the next try.
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
    """What it gave is not what was asked for; what is sent there mends it."""


class LocalError(Exception):
    """What went wrong on this side: a disk that is full, an object that is damaged."""


class TooLongError(Exception):
    """More bytes than were to be taken."""


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
        """Take the next bytes."""
        self.expect(self.size + len(block))
        self.size += len(block)
        self.time_left.moved(len(block))
        self._digest.update(block)
        try:
            self._stream.write(block)
        except OSError as error:
            raise LocalError(error.strerror or str(error)) from error

    def expect(self, size: int) -> None:
        """Hear how many bytes will come in all, before any is read."""
        if size > self.limit:
            raise TooLongError

    @property
    def sha256(self) -> str:
        """The hex digest of what came."""
        return self._digest.hexdigest()


_BLOCK = 1 << 18


def file_size(source: Path) -> int:
    """The length of a file to send."""
    try:
        return source.stat().st_size
    except OSError as error:
        raise LocalError(error.strerror or str(error)) from error


def file_blocks(name: str, source: Path, size: int, time_left: TimeLeft) -> Iterator[bytes]:
    """The bytes of a file as the entry ``name``.

    The last block comes when all of them are known to be right: a receiver that is promised
    ``size`` bytes and gets fewer keeps none.
    """
    kind, key = PurePosixPath(name).parts
    digest, left = hashlib.sha256(), size
    try:
        with source.open("rb") as stream:
            while left:
                block = stream.read(min(_BLOCK, left))
                digest.update(block)
                left -= len(block)
                if not block or (not left and os.fstat(stream.fileno()).st_size != size):
                    message = f"{source.name} changed while it was sent"
                    raise LocalError(message)
                if not left and kind == "cas" and digest.hexdigest() != key:
                    message = f"the object {key} is damaged"
                    raise LocalError(message)
                yield block
                time_left.moved(len(block))
    except OSError as error:
        raise LocalError(error.strerror or str(error)) from error
