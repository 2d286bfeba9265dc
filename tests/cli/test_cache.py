"""The verb ``cache``: what the store holds, and keeping it small and whole."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from mobileprep.building.pipeline import eviction
from mobileprep.building.pipeline.file_index import FileIndex
from mobileprep.building.pipeline.locks import share
from mobileprep.building.pipeline.store import Store
from mobileprep.cli._shared.arguments import size_text
from tests.cli.conftest import Run


@pytest.fixture
def store(built: Path, tmp_path: Path) -> Path:
    """The store of a build."""
    return tmp_path / "store"


def facts(run: Run, *arguments: str) -> Any:
    told = run("cache", *arguments, "--json")
    assert told.code in (0, 4), told.err
    return json.loads(told.out)


def objects(store: Path) -> list[Path]:
    return sorted((store / "v2" / "cas").glob("*/*"))


def records(store: Path) -> list[Path]:
    return sorted((store / "v2" / "ac").glob("*/*"))


def test_info_tells_what_is_there_and_nothing_secret(
    store: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE", "https://me:secret@host.example/cache?x=y")
    monkeypatch.setenv("MOBILEPREP_CACHE_MAX", "3 GB")
    (store / "v1" / "records").mkdir(parents=True)
    (store / "v1" / "records" / "a").write_bytes(b"12345")
    found = facts(run, "info")
    assert (found["objects"], found["records"]) == (len(objects(store)), len(records(store)))
    assert found["object_bytes"] == sum(p.stat().st_size for p in objects(store))
    assert [(one["name"], one["used"]) for one in found["formats"]] == [("v1", False), ("v2", True)]
    assert found["formats"][0]["bytes"] == 5
    assert (found["limit_bytes"], found["remote"]) == (3 * 10**9, "https://host.example/cache")
    told = run("cache", "info")
    assert "secret" not in told.out
    assert f"folder: {store}\n" in told.out
    assert "limit: 3.0 GB" in told.out
    assert "old format v1: 5 bytes" in told.out


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://key:sec/ret@bucket/a", "s3://bucket/a"),
        ("http://host:8080/a@b", "http://host:8080/a@b"),
    ],
)
def test_info_shows_no_secret_that_holds_a_slash(
    run: Run, monkeypatch: pytest.MonkeyPatch, url: str, shown: str
) -> None:
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE", url)
    assert facts(run, "info")["remote"] == shown


def test_info_of_no_store_makes_none(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "none"))
    for action in ("info", "gc", "verify", "clear"):
        assert run("cache", action).code == 0
    assert not (tmp_path / "none").exists()


def test_gc_removes_old_formats_and_what_is_unfinished(store: Path, run: Run) -> None:
    before = objects(store)
    (store / "v1").mkdir()
    (store / "v1" / "a").write_bytes(b"12345")
    (store / "v9").mkdir()
    (store / "notes").mkdir()
    gone = store / "v2" / "tmp" / "1-abc"
    gone.mkdir()
    os.utime(gone, (1, 1))
    found = facts(run, "gc")
    assert found["formats"] == ["v1"]
    assert found["workspaces"] == 1
    assert (found["objects"], found["removed_bytes"]) == (0, 5)
    assert not (store / "v1").exists()
    assert (store / "v9").exists(), "that of a newer version"
    assert (store / "notes").exists(), "none of ours"
    assert objects(store) == before


def test_gc_keeps_what_was_used_within_the_hour_and_else_the_bound(
    store: Path, built: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = objects(store)
    told = run("cache", "gc", "--max-size", "1KB")
    assert "entries used within the last hour are kept" in told.out
    assert objects(store) == before
    monkeypatch.setattr(eviction, "_GRACE_SECONDS", -1)
    found = facts(run, "gc", "--max-size", "100KB")
    assert 0 < found["left_bytes"] <= 100_000
    assert found["objects"] == len(before) - len(objects(store))
    assert run("cache", "verify").code == 0
    assert run("build", built).code == 0


def test_gc_waits_for_builds_or_says_so(store: Path, run: Run) -> None:
    release = share(store / "v2")
    told = run("cache", "gc", "--no-wait")
    assert (told.code, "being used by a build" in told.err) == (9, True)
    assert run("cache", "clear", "--no-wait").code == 9
    release()
    assert run("cache", "gc", "--no-wait").code == 0


@pytest.mark.parametrize("size", ["much", "-1", "5 XB", ""])
def test_a_size_that_is_none_is_refused(store: Path, run: Run, size: str) -> None:
    told = run("cache", "gc", f"--max-size={size}")
    assert told.code == 2
    assert "such as 5GB" in told.err


def test_the_size_goes_with_gc_alone(run: Run) -> None:
    assert run("cache", "clear", "--max-size", "1KB").code == 2


def test_a_bound_that_is_no_size_stops_a_build_before_it_begins(
    built: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE_MAX", "lots")
    told = run("build", built, "--force")
    assert told.code == 2
    assert "MOBILEPREP_CACHE_MAX" in told.err


def test_verify_finds_and_removes_what_is_damaged(store: Path, built: Path, run: Run) -> None:
    told = run("cache", "verify")
    assert (told.code, told.err) == (0, "")
    spoilt = [objects(store)[0], objects(store)[1], records(store)[0], objects(store)[2]]
    spoilt[0].write_bytes(b"")
    spoilt[1].unlink()
    spoilt[1].mkdir()
    spoilt[2].write_text("{}")
    spoilt[3].unlink()
    os.mkfifo(spoilt[3])
    moved = records(store)[1]
    copy = moved.with_name(f"{'0' * 64}.json")
    shutil.copy(moved, copy)
    found = facts(run, "verify")
    assert sorted(found["damaged"]) == sorted(map(str, [*spoilt, copy]))
    assert not any(os.path.lexists(path) for path in (*spoilt, copy))
    assert found["incomplete"] > 0
    told = run("cache", "verify")
    assert told.code == 0
    assert "built again when needed" in told.out
    assert run("build", built, "--force").code == 0
    assert "need what is not there" not in run("cache", "verify").out


def test_verify_tells_what_it_cannot_remove(
    store: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoilt = objects(store)[0]
    spoilt.write_bytes(b"")

    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    told = run("cache", "verify")
    assert (told.code, f"{spoilt}: damaged, and cannot be removed\n" in told.out) == (4, True)
    assert facts(run, "verify")["stuck"] == [str(spoilt)]


def test_verify_tells_nothing_of_what_others_mend_or_remove_meanwhile(
    store: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    mended, gone, record = objects(store)[0], objects(store)[1], records(store)[0]
    kept = mended.read_bytes()
    mended.write_bytes(b"")
    real_match, real_judge = FileIndex.match_many, Store.is_record

    def match(index: FileIndex, wanted: Iterable[tuple[Path, str, int]]) -> list[bool]:
        gone.unlink(missing_ok=True)
        found = real_match(index, wanted)
        mended.write_bytes(kept)
        return found

    def judge(judged: Store, path: Path) -> bool:
        record.unlink(missing_ok=True)
        return real_judge(judged, path)

    monkeypatch.setattr(FileIndex, "match_many", match)
    monkeypatch.setattr(Store, "is_record", judge)
    told = run("cache", "verify")
    assert (told.code, "damaged" in told.out) == (0, False)
    assert mended.read_bytes() == kept


@pytest.mark.parametrize("name", ["v1", "v2"])
def test_clear_counts_nothing_of_what_lies_behind_a_link(
    store: Path, run: Run, tmp_path: Path, name: str
) -> None:
    run("cache", "clear")
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "file").write_bytes(bytes(5000))
    store.mkdir(exist_ok=True)
    (store / name).symlink_to(tmp_path / "big")
    told = run("cache", "clear")
    assert told.code == 0
    assert told.out == f"{store}: 0 bytes removed\n"
    assert f"{store / name} is a symlink: its target is kept" in told.err
    assert (tmp_path / "big" / "file").exists()
    assert not (store / name).is_symlink()


def test_clear_removes_all_formats_and_nothing_else(store: Path, built: Path, run: Run) -> None:
    (store / "v1").mkdir()
    (store / "notes").write_text("mine")
    found = facts(run, "clear")
    assert found["formats"] == ["v1", "v2"]
    assert found["removed_bytes"] > 1000
    assert sorted(p.name for p in store.iterdir()) == ["notes"]
    assert "there is nothing" in run("cache", "clear").out
    assert run("build", built).code == 0


def test_a_store_that_is_a_file_is_named(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "file"))
    for action in ("info", "gc", "verify", "clear"):
        told = run("cache", action)
        assert (told.code, "MOBILEPREP_CACHE" in told.err) == (4, True)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 KB"), (96 * 10**6, "96.0 MB")],
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert size_text(count) == text
