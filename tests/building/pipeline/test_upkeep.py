"""What builds do for their store: saying that they use it, and keeping it within its bound."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mobileprep.building.pipeline import eviction
from mobileprep.building.pipeline.eviction import DEFAULT_MAX, store_bound
from mobileprep.building.pipeline.output import Record
from mobileprep.building.pipeline.store import Store
from mobileprep.errors import UsageError

DAY = 24 * 3600


def nobody(sentence: str) -> None:
    """Tells nothing."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # A ctime no test can set.
    monkeypatch.setattr(eviction, "GRACE_SECONDS", -1)
    return tmp_path / "store"


def run(folder: Path, name: str, size: int, *, days: float = 0, limit: int | None) -> None:
    """A run of one stage that leaves so many bytes, some time ago."""
    store = Store(folder)
    store.begin()
    work = store.workspace()
    (work / "left" / "a").write_bytes(name.encode() * size)
    key = (name * 64)[:64]
    store.save(key, Record({}, {"a": store.take(work / "left" / "a")}, 0.0))
    path = folder / "v2" / "ac" / key[:2] / f"{key}.json"
    used = path.stat().st_mtime - days * DAY
    os.utime(path, (used, used))
    store.finish(limit)


def kept(folder: Path) -> set[str]:
    return {p.stem[0] for p in (folder / "v2" / "ac").rglob("*.json")}


def age_measurement(folder: Path, seconds: float) -> None:
    note = folder / "v2" / "measured"
    then = note.stat().st_mtime - seconds
    os.utime(note, (then, then))


def test_a_store_over_its_limit_loses_the_least_recently_used_entries(folder: Path) -> None:
    for name, days in (("a", 3), ("b", 1), ("c", 2)):
        run(folder, name, 10_000, days=days, limit=25_000)
    assert kept(folder) == {"a", "b", "c"}, "measured a moment ago"
    age_measurement(folder, eviction._PAUSE_SECONDS)
    run(folder, "d", 10, limit=25_000)
    assert kept(folder) == {"b", "c", "d"}


def test_without_a_limit_nothing_is_removed_or_measured(folder: Path) -> None:
    run(folder, "a", 10_000, limit=None)
    assert kept(folder) == {"a"}
    assert not (folder / "v2" / "measured").exists()


def test_a_store_is_measured_once_an_hour(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    real = eviction.evict
    monkeypatch.setattr(eviction, "evict", lambda *a: counts.append(1) or real(*a))
    for expected, seconds in enumerate((0, eviction._PAUSE_SECONDS, -DAY), 1):  # the clock was set
        if seconds:
            age_measurement(folder, seconds)
        for _ in range(2):
            run(folder, "a", 10, limit=10**6)
        assert len(counts) == expected


def test_a_build_that_runs_nothing_takes_no_lock(folder: Path) -> None:
    store = Store(folder)
    store.finish(0)
    assert not folder.exists()


def test_while_another_build_runs_nothing_is_cleared(folder: Path) -> None:
    """What the other has found may be what no record needs yet."""
    run(folder, "a", 10_000, days=1, limit=None)
    other = Store(folder)
    other.begin()
    run(folder, "b", 10_000, limit=100)
    assert kept(folder) == {"a", "b"}
    other.finish(100)
    assert kept(folder) == set()


def test_the_bound_is_read_from_the_environment() -> None:
    assert store_bound({}) == DEFAULT_MAX == 20_000_000_000
    assert store_bound({"MOBILEPREP_CACHE_MAX": "1.5 GB"}) == 1_500_000_000
    assert store_bound({"MOBILEPREP_CACHE_MAX": "None"}) is None
    with pytest.raises(UsageError, match="is not a valid size"):
        store_bound({"MOBILEPREP_CACHE_MAX": "big"})
