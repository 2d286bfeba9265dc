"""What a remote store is to the rest, and what lies below: a place of named bytes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from mobileprep.pipeline.remote.sink import Sink
from mobileprep.pipeline.remote.time_left import TimeLeft

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
            key: 64 hexadecimal digits in lower case.
            target: where to write.
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
