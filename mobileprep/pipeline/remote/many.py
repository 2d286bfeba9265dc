"""Many entries at once: on a line of any length the waits for answers then overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from mobileprep.pipeline.remote.base import Kind, Remote

T = TypeVar("T")

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
    return _all(lambda w: remote.fetch(w.kind, w.key, w.target, limit=w.limit), list(wanted))


def has_many(remote: Remote, entries: Iterable[tuple[Kind, str]]) -> list[bool]:
    """Which of some entries the store says that it has, in their order."""
    return _all(lambda entry: remote.has(*entry), list(entries))


def send_many(remote: Remote, offered: Iterable[Offered]) -> list[bool]:
    """Which of some files are there afterwards, in their order.

    Records are sent when the objects are there: no machine finds a record before what it names.
    None is sent where an object could not be.
    """
    listed = list(offered)
    objects = [entry for entry in listed if entry.kind == "cas"]
    sent = dict(zip(objects, _all(lambda o: remote.send(*o), objects), strict=True))
    records = [entry for entry in listed if entry.kind == "ac"] if all(sent.values()) else []
    sent |= zip(records, _all(lambda o: remote.send(*o), records), strict=True)
    return [sent.get(entry, False) for entry in listed]


def _all(work: Callable[[T], bool], listed: list[T]) -> list[bool]:
    if len(listed) < 2:
        return [work(entry) for entry in listed]
    from concurrent.futures import ThreadPoolExecutor  # slow to import

    pool = ThreadPoolExecutor(min(THREADS, len(listed)), thread_name_prefix="mobileprep-remote")
    try:
        return list(pool.map(work, listed))
    finally:
        pool.shutdown(cancel_futures=True)
