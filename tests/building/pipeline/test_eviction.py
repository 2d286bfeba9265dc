"""A store kept within a size."""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from mobileprep.building.pipeline import eviction
from mobileprep.building.pipeline.cache_files import mark_used
from mobileprep.building.pipeline.eviction import (
    DEFAULT_MAX,
    Evicted,
    StoreFacts,
    evict,
    forget_notes,
    remove_unfinished,
    store_bound,
    survey,
)
from mobileprep.building.pipeline.output import Record
from mobileprep.building.pipeline.store import Store
from mobileprep.core.files import sha256_bytes, write_bytes
from mobileprep.errors import CorruptFileError, UsageError

DAY = 24 * 3600


def references(record: Path) -> list[str]:
    """As the pipeline reads a record: damaged ones need nothing."""
    try:
        return list(json.loads(record.read_bytes()))
    except (OSError, ValueError) as error:
        raise CorruptFileError(str(error)) from error


class Folder:
    """A store whose records are lists of digests; its files' ages are set."""

    def __init__(self, folder: Path) -> None:
        self.path = folder

    def object(self, data: bytes) -> str:
        digest = sha256_bytes(data)
        write_bytes(self.path / "cas" / digest[:2] / digest, data)
        return digest

    def record(self, name: str, *digests: str, days: float = 1) -> Path:
        key = sha256_bytes(name.encode())
        path = self.path / "ac" / key[:2] / f"{key}.json"
        write_bytes(path, json.dumps(digests).encode())
        used = time.time() - days * DAY
        with contextlib.suppress(FileNotFoundError):  # evicted by another process
            os.utime(path, (used, used))
        return path

    def objects(self) -> set[bytes]:
        return {p.read_bytes() for p in (self.path / "cas").rglob("*") if p.is_file()}

    def evict(self, limit: int) -> Evicted:
        return evict(self.path, limit, references)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    # An object's age is its ctime too, which no test can set.
    monkeypatch.setattr(eviction, "GRACE_SECONDS", -1)
    return Folder(tmp_path / "v2")


def test_a_survey_counts_objects_records_and_uses(store: Folder) -> None:
    assert survey(store.path) == StoreFacts(0, 0, 0, 0, None, None)
    old = store.record("old", store.object(b"abc"), days=3)
    new = store.record("new", store.object(b"defgh"), days=1)
    size = old.stat().st_size + new.stat().st_size
    uses = old.stat().st_mtime, new.stat().st_mtime
    assert survey(store.path) == StoreFacts(2, 8, 2, size, *uses)


def test_cache_within_its_limit_is_not_changed(store: Folder) -> None:
    store.object(b"needed by none")
    facts = survey(store.path)
    assert store.evict(facts.object_bytes) == Evicted(0, 0, 0, facts.object_bytes)
    assert store.objects() == {b"needed by none"}


def test_objects_that_no_record_needs_go_first(store: Folder) -> None:
    record = store.record("a", store.object(b"needed"), days=1000)
    store.object(b"needed by none")
    left = len(b"needed") + record.stat().st_size
    assert store.evict(left) == Evicted(1, 0, len(b"needed by none"), left)
    assert store.objects() == {b"needed"}
    assert record.exists()


def test_no_more_goes_than_the_limit_asks(store: Folder) -> None:
    for data in (b"abc", b"def", b"ghi"):
        store.object(data)
    assert store.evict(6) == Evicted(1, 0, 3, 6)
    assert store.evict(6) == Evicted(0, 0, 0, 6)


def test_least_recently_used_records_are_evicted_with_their_objects(store: Folder) -> None:
    both, one, two = (store.object(data * 100) for data in (b"b", b"1", b"2"))
    old = store.record("old", both, one, days=2)
    new = store.record("new", both, two, days=1)
    mark = old.stat().st_size
    assert store.evict(299 + 2 * mark) == Evicted(1, 1, 100 + mark, 200 + mark)
    assert (old.exists(), new.exists()) == (False, True)
    assert store.objects() == {b"b" * 100, b"2" * 100}
    assert store.evict(0) == Evicted(2, 1, 200 + mark, 0)
    assert store.objects() == set()


def test_used_record_is_evicted_later(store: Folder) -> None:
    first = store.record("first", store.object(b"1" * 100), days=9)
    second = store.record("second", store.object(b"2" * 100), days=8)
    mark_used(first)
    store.evict(survey(store.path).object_bytes)
    assert (first.exists(), second.exists()) == (True, False)


def test_a_use_is_written_down_at_most_every_half_hour(store: Folder) -> None:
    now = time.time()
    for ago, marked in ((60, False), (1700, False), (1900, True), (-3700, True)):
        record = store.record("a", days=ago / DAY)
        before = record.stat()
        mark_used(record)
        assert (record.stat().st_ctime_ns != before.st_ctime_ns) is marked
        assert (record.stat().st_mtime >= now - 1) is (marked or ago < 0)
    mark_used(store.path / "missing.json")


def test_recent_entries_are_not_evicted(store: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    used = store.record("used", store.object(b"1" * 100), days=0.9 / 24)
    unused = store.record("unused", store.object(b"2" * 100), days=1.1 / 24)
    store.object(b"needed by none yet")
    monkeypatch.setattr(eviction, "GRACE_SECONDS", 3600)
    done = store.evict(0)
    assert (done.objects, done.records) == (0, 1)
    assert done.left_bytes == 218 + used.stat().st_size
    assert not unused.exists()


def test_a_record_that_was_used_since_the_round_began_stays(store: Folder) -> None:
    record = store.record("a", store.object(b"1"))

    def meanwhile(path: Path) -> list[str]:
        mark_used(record)
        return references(path)

    assert evict(store.path, 0, meanwhile).records == 0
    assert record.exists()
    assert store.objects() == {b"1"}


def test_concurrently_removed_entry_is_ignored(store: Folder) -> None:
    digest = store.object(b"1" * 100)
    record = store.record("a", digest)

    def meanwhile(path: Path) -> list[str]:
        found = references(path)
        record.unlink()
        (store.path / "cas" / digest[:2] / digest).unlink()
        return found

    assert evict(store.path, 0, meanwhile).left_bytes == 0


def test_damaged_records_and_records_of_missing_objects_are_evicted_like_others(
    store: Folder,
) -> None:
    damaged = store.record("a", days=2)
    damaged.write_bytes(b"{")
    missing = store.record("b", sha256_bytes(b"missing"))
    assert store.evict(0).records == 2
    assert not damaged.exists()
    assert not missing.exists()


def test_files_that_are_not_the_stores_are_neither_followed_nor_removed(
    store: Folder, tmp_path: Path
) -> None:
    outside = Folder(tmp_path / "elsewhere")
    kept = outside.path / "cas" / (digest := outside.object(b"outside"))[:2] / digest
    (store.path / "cas").mkdir(parents=True)
    (store.path / "cas" / digest[:2]).symlink_to(kept.parent)
    (store.path / "cas" / "aa").mkdir(exist_ok=True)
    (store.path / "cas" / "aa" / digest).symlink_to(kept)
    (store.path / "cas" / "aa" / "README").write_bytes(b"text")
    (store.path / "cas" / "aa" / ("a" * 64)).mkdir()
    (store.path / "ac").write_bytes(b"a file in place of a folder")
    assert survey(store.path).objects == 0
    assert store.evict(-1) == Evicted(0, 0, 0, 0)
    assert kept.read_bytes() == b"outside"
    assert (store.path / "cas" / "aa" / "README").exists()


def test_object_times_do_not_change(store: Folder) -> None:
    digest = store.object(b"needed")
    mark_used(store.record("a", digest, days=5))
    path = store.path / "cas" / digest[:2] / digest
    before = path.stat()
    store.evict(survey(store.path).object_bytes + 1000)
    after = path.stat()
    assert (after.st_mtime_ns, after.st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)


def test_of_notes_on_tasks_and_files_the_oldest_go(
    store: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction, "GRACE_SECONDS", 3600)
    notes = []
    for days, kind in enumerate(["latest", "seen", "latest", "seen"], start=1):
        notes.append(store.path / kind / f"{days:064x}.json")
        write_bytes(notes[-1], bytes(100))
        used = time.time() - days * DAY
        os.utime(notes[-1], (used, used))
    assert forget_notes(store.path, 20 * 400) == 0
    mark_used(notes[3])
    assert forget_notes(store.path, 20 * 250) == 200
    assert [note.exists() for note in notes] == [True, False, False, True]
    assert forget_notes(store.path, 0) == 100, "what was used within the hour stays"
    assert notes[3].exists()


def test_times_ahead_of_the_clock_keep_nothing(store: Folder) -> None:
    """No use that is yet to come was one: the clock was wrong then."""
    size = store.record("now", store.object(b"now"), days=0).stat().st_size + 3
    store.record("old", store.object(b"old"), days=9)
    store.record("ahead", store.object(b"ahead"), days=-19)
    store.evict(2 * size)
    assert store.objects() == {b"now", b"old"}
    note = store.path / "seen" / f"{'a' * 64}.json"
    write_bytes(note, b"x" * 100)
    os.utime(note, (time.time() + DAY + 60,) * 2)
    half = store.path / "cas" / f".{'b' * 64}.0123456789abcdef"
    half.touch()
    os.utime(half, (time.time() + DAY + 60,) * 2)
    assert forget_notes(store.path, 0) == 100
    assert remove_unfinished(store.path) == 1


def test_files_half_written_by_killed_processes_are_removed_after_a_day(
    store: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = store.object(b"whole")
    half = store.path / "cas" / digest[:2] / f".{digest}.0123456789abcdef"
    half.write_bytes(b"who")
    assert remove_unfinished(store.path) == 0
    monkeypatch.setattr(eviction, "_UNFINISHED_SECONDS", -1)
    assert remove_unfinished(store.path) == 1
    assert not half.exists()
    assert store.objects() == {b"whole"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may do all")
def test_unwritable_and_unreadable_caches_are_reported(store: Folder) -> None:
    digest = store.object(b"kept")
    folder = store.path / "cas" / digest[:2]
    folder.chmod(0o500)
    try:
        assert store.evict(0) == Evicted(0, 0, 0, 4)
        folder.chmod(0)
        with pytest.raises(CorruptFileError, match="cannot be read"):
            store.evict(0)
    finally:
        folder.chmod(0o700)


def use_store(arguments: tuple[Path, int]) -> int:
    """Builds and evictions of one process; how often an object was there and wrong."""
    folder, seed = arguments
    eviction.GRACE_SECONDS = -1  # in a process of its own
    dice, store, wrong = random.Random(seed), Folder(folder), 0
    for _ in range(30):
        content = [bytes([dice.randrange(20)]) * 1000 for _ in range(3)]
        digests = [store.object(data) for data in content]
        mark_used(store.record(str(dice.randrange(30)), *digests, days=dice.random()))
        for digest, data in zip(digests, content, strict=True):
            try:
                found = (folder / "cas" / digest[:2] / digest).read_bytes()
            except FileNotFoundError:
                continue  # a real build makes it anew
            wrong += found != data
        store.evict(5000)
        survey(folder)
    return wrong


def test_many_processes_build_and_evict_at_once(store: Folder) -> None:
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        assert sum(pool.map(use_store, [(store.path, seed) for seed in range(4)])) == 0
    assert store.evict(5000).left_bytes <= 5000
    assert survey(store.path).object_bytes <= 5000


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
