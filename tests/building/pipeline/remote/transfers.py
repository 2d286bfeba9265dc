"""Several transfers at once, with the result of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from mobileprep.building.pipeline.remote.base import Kind
from mobileprep.building.pipeline.remote.guarded import Remote


class Wanted(NamedTuple):
    kind: Kind
    key: str
    target: Path
    limit: int


class Offered(NamedTuple):
    kind: Kind
    key: str
    source: Path


def fetch_many(remote: Remote, requests: Sequence[Wanted]) -> list[bool]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda w: remote.fetch(*w[:3], limit=w.limit), requests))


def has_many(remote: Remote, entries: Iterable[tuple[Kind, str]]) -> list[bool]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda entry: remote.has(*entry), entries))


def send_many(remote: Remote, offered: Iterable[Offered]) -> list[bool]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda entry: remote.send(*entry), offered))
