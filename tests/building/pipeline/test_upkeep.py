"""What builds do for their store: saying that they use it, and keeping it within its bound."""

from __future__ import annotations

import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mobileprep.building.pipeline import eviction
from mobileprep.building.pipeline.eviction import DEFAULT_MAX, Upkeep, store_bound
from mobileprep.building.pipeline.output import Record
from mobileprep.building.pipeline.store import Store
from mobileprep.building.pipeline.store_lock import alone, remove_folder, share
from mobileprep.errors import ArtifactError, UsageError

DAY = 24 * 3600


def nobody(sentence: str) -> None:
    """Tells nothing."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # A ctime no test can set.
    monkeypatch.setattr(eviction, "_GRACE_SECONDS", -1)
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


def age_count(folder: Path, seconds: float) -> None:
    note = folder / "v2" / "size.json"
    counted, *added = note.read_text().splitlines(keepends=True)
    data = json.loads(counted)
    head = json.dumps({**data, "counted": data["counted"] - seconds}) + "\n"
    note.write_text("".join([head, *added]))


def test_a_store_over_its_bound_loses_what_was_used_least_recently(folder: Path) -> None:
    for name, days in (("a", 3), ("b", 1), ("c", 2)):
        run(folder, name, 10_000, days=days, limit=25_000)
    assert kept(folder) == {"a", "b", "c"}, "counted a moment ago"
    age_count(folder, eviction._PAUSE_SECONDS)
    run(folder, "d", 10, limit=25_000)
    assert kept(folder) == {"b", "c", "d"}


def test_without_a_bound_nothing_goes_and_nothing_is_counted(folder: Path) -> None:
    run(folder, "a", 10_000, limit=None)
    assert kept(folder) == {"a"}
    assert not (folder / "v2" / "size.json").exists()


def test_a_store_is_counted_anew_once_a_day(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    real = eviction.evict
    monkeypatch.setattr(eviction, "evict", lambda *a: counts.append(1) or real(*a))
    for _ in range(3):
        run(folder, "a", 10, limit=10**6)
    assert len(counts) == 0, "it began empty"
    age_count(folder, DAY)
    run(folder, "a", 10, limit=10**6)
    assert len(counts) == 1
    age_count(folder, -DAY)  # the clock was set back
    run(folder, "a", 10, limit=10**6)
    assert len(counts) == 2
    (folder / "v2" / "size.json").write_text("[]")
    run(folder, "a", 10, limit=10**6)
    assert len(counts) == 3


def held(folder: Path) -> int:
    """The bytes of a store by its note: what was counted, and what runs have added since."""
    counted, *added = (folder / "v2" / "size.json").read_text().splitlines()
    return int(json.loads(counted)["bytes"]) + sum(map(int, added))


def test_what_the_first_run_writes_is_what_a_store_holds(folder: Path) -> None:
    run(folder, "a", 1000, limit=10**6)
    assert held(folder) == 1000
    run(folder, "b", 500, limit=10**6)
    assert held(folder) == 1500


def test_two_runs_that_begin_with_an_empty_store_are_both_noted(folder: Path) -> None:
    other = Store(folder)
    other.begin()
    run(folder, "a", 1000, limit=10**6)
    work = other.workspace()
    (work / "left" / "b").write_bytes(b"b" * 500)
    other.take(work / "left" / "b")
    other.finish(10**6)
    assert held(folder) == 1500


def test_a_store_that_a_killed_run_has_filled_is_counted(folder: Path) -> None:
    run(folder, "a", 1000, limit=None)
    run(folder, "b", 500, limit=10**6)
    assert held(folder) > 1500


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


def test_the_last_build_to_end_knows_what_those_before_it_wrote(folder: Path) -> None:
    run(folder, "a", 10_000, days=1, limit=15_000)
    age_count(folder, eviction._PAUSE_SECONDS)
    other = Store(folder)
    other.begin()
    run(folder, "b", 10_000, limit=15_000)
    assert kept(folder) == {"a", "b"}, "the other may need them"
    other.finish(15_000)
    assert kept(folder) == {"b"}


def test_builds_that_end_at_once_are_all_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(folder, "a", 10_000, days=1, limit=25_000)
    real = Upkeep._read_note

    def noted(one: Upkeep) -> object:
        found = real(one)
        monkeypatch.setattr(Upkeep, "_read_note", real)
        run(folder, "b", 10_000, limit=25_000)
        return found

    monkeypatch.setattr(Upkeep, "_read_note", noted)
    run(folder, "c", 10_000, limit=25_000)
    assert kept(folder) == {"a", "b", "c"}, "counted a moment ago"
    age_count(folder, eviction._PAUSE_SECONDS)
    run(folder, "d", 10, limit=25_000)
    assert kept(folder) == {"b", "c", "d"}


def test_clearing_waits_for_builds_and_builds_for_clearing(tmp_path: Path) -> None:
    release = share(tmp_path)
    other = share(tmp_path)
    refused = pytest.raises(ArtifactError, match="being used by a build")
    with refused, alone(tmp_path, wait=False, tell=nobody):
        pytest.fail("it is not alone")
    said: list[str] = []
    entered = threading.Event()

    def clear() -> None:
        with alone(tmp_path, wait=True, tell=said.append):
            entered.set()

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(clear)
        assert not entered.wait(0.2)
        release()
        assert not entered.wait(0.2)
        other()
        waiting.result(10)
    assert len(said) == 1
    assert "being used by a build" in said[0]
    with ThreadPoolExecutor() as pool, alone(tmp_path, wait=False, tell=nobody):
        building = pool.submit(share, tmp_path)
        (tmp_path / "lock").unlink()  # as clearing does
    building.result(10)()


def test_a_store_goes_before_its_lock_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that waits begins as the lock goes: what it makes then is not to be removed."""
    for name in ("ac", "cas", "seen"):
        (tmp_path / name / "00").mkdir(parents=True)
    (tmp_path / "size.json").write_text("{}")
    begun = []

    def removing(path: str) -> None:
        with pytest.raises(ArtifactError), alone(tmp_path, wait=False, tell=nobody):
            begun.append(path)
        real(path)

    real = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", removing)
    with alone(tmp_path, wait=True, tell=nobody):
        remove_folder(tmp_path)
    assert begun == []
    assert not tmp_path.exists()


def test_a_build_that_begins_as_a_store_goes_keeps_what_it_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.unlink

    def unlinking(path: Path, *, missing_ok: bool = False) -> None:
        real(path, missing_ok=missing_ok)
        path.with_name("mine").write_text("of a build")

    monkeypatch.setattr(Path, "unlink", unlinking)
    with alone(tmp_path, wait=True, tell=nobody):
        remove_folder(tmp_path)
    assert (tmp_path / "mine").read_text() == "of a build"


@pytest.mark.parametrize("kind", ["folder", "link", "link to a file", "pipe"])
def test_what_has_taken_the_place_of_the_lock_is_no_hindrance(tmp_path: Path, kind: str) -> None:
    folder, other = tmp_path / "store", tmp_path / "file"
    folder.mkdir()
    if kind == "folder":
        (folder / "lock" / "more").mkdir(parents=True)
    elif kind == "pipe":
        os.mkfifo(folder / "lock")
    else:
        (folder / "lock").symlink_to(other)
    if kind == "link to a file":
        other.write_text("mine")
    release = share(folder)
    with pytest.raises(ArtifactError), alone(folder, wait=False, tell=nobody):
        pass
    release()
    with alone(folder, wait=False, tell=nobody):
        pass
    assert other.exists() is (kind == "link to a file")


def test_where_no_file_can_be_made_nothing_is_locked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    share(tmp_path / "file")()
    with alone(tmp_path / "file", wait=False, tell=nobody):
        assert (tmp_path / "file").read_text() == "mine"


def test_the_bound_is_read_from_the_environment() -> None:
    assert store_bound({}) == DEFAULT_MAX == 20_000_000_000
    assert store_bound({"MOBILEPREP_CACHE_MAX": "1.5 GB"}) == 1_500_000_000
    assert store_bound({"MOBILEPREP_CACHE_MAX": "None"}) is None
    with pytest.raises(UsageError, match="is not a valid size"):
        store_bound({"MOBILEPREP_CACHE_MAX": "big"})
