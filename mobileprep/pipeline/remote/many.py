"""Many entries at once: on a line of any length the waits for answers then overlap."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from mobileprep.core.parallel import at_once
from mobileprep.pipeline.remote.base import Kind, Remote

THREADS: Final = 8


class Wanted(NamedTuple):
    """An entry to fetch; see ``Remote.fetch``."""

    kind: Kind
    key: str
    target: Path
    limit: int


class Offered(NamedTuple):
    """A file to send; see ``Remote.send``."""

    kind: Kind
    key: str
    source: Path


def fetch_many(remote: Remote, wanted: Iterable[Wanted]) -> list[bool]:
    """Which of some entries could be fetched, in their order."""

    def fetch(entry: Wanted) -> bool:
        return remote.fetch(entry.kind, entry.key, entry.target, limit=entry.limit)

    return at_once(fetch, list(wanted), THREADS)


def has_many(remote: Remote, entries: Iterable[tuple[Kind, str, int | None]]) -> list[bool]:
    """Which of some entries the store says that it has, in their order."""
    return at_once(lambda entry: remote.has(*entry), list(entries), THREADS)


def send_many(remote: Remote, offered: Iterable[Offered]) -> list[bool]:
    """Which of some files are there afterwards, in their order.

    Records are sent when the objects are there: no machine finds a record before what it names.
    None is sent where an object could not be.
    """

    def send(entry: Offered) -> bool:
        return remote.send(*entry)

    listed = list(offered)
    objects = [entry for entry in listed if entry.kind == "cas"]
    sent = dict(zip(objects, at_once(send, objects, THREADS), strict=True))
    records = [entry for entry in listed if entry.kind == "ac"] if all(sent.values()) else []
    sent |= zip(records, at_once(send, records, THREADS), strict=True)
    return [sent.get(entry, False) for entry in listed]
