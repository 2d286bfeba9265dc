"""The verb ``cache``: information, garbage collection, and verification."""

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
    """The cache of a build."""
    return tmp_path / "store"


def cache_json(run: Run, *arguments: str) -> Any:
    result = run("cache", *arguments, "--json")
    assert result.code in (0, 4), result.err
    return json.loads(result.out)


def objects(store: Path) -> list[Path]:
    return sorted((store / "v2" / "cas").glob("*/*"))


def records(store: Path) -> list[Path]:
    return sorted((store / "v2" / "ac").glob("*/*"))


def test_info_lists_contents_and_hides_secrets(
    store: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE", "https://me:secret@host.example/cache?x=y")
    monkeypatch.setenv("MOBILEPREP_CACHE_MAX", "3 GB")
    (store / "v1" / "records").mkdir(parents=True)
    (store / "v1" / "records" / "a").write_bytes(b"12345")
    info = cache_json(run, "info")
    assert (info["objects"], info["records"]) == (len(objects(store)), len(records(store)))
    assert info["object_bytes"] == sum(p.stat().st_size for p in objects(store))
    assert [(one["name"], one["used"]) for one in info["formats"]] == [("v1", False), ("v2", True)]
    assert info["formats"][0]["bytes"] == 5
    assert (info["limit_bytes"], info["remote"]) == (3 * 10**9, "https://host.example/cache")
    result = run("cache", "info")
    assert "secret" not in result.out
    assert f"folder: {store}\n" in result.out
    assert "limit: 3.0 GB" in result.out
    assert "old format v1: 5 bytes" in result.out


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://key:sec/ret@bucket/a", "s3://bucket/a"),
        ("http://host:8080/a@b", "http://host:8080/a@b"),
    ],
)
def test_info_hides_secrets_with_slashes(
    run: Run, monkeypatch: pytest.MonkeyPatch, url: str, shown: str
) -> None:
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE", url)
    assert cache_json(run, "info")["remote"] == shown


def test_actions_without_a_cache_create_none(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "none"))
    for action in ("info", "gc", "verify", "clear"):
        assert run("cache", action).code == 0
    assert not (tmp_path / "none").exists()


def test_gc_removes_old_formats_and_unfinished_entries(store: Path, run: Run) -> None:
    before = objects(store)
    (store / "v1").mkdir()
    (store / "v1" / "a").write_bytes(b"12345")
    (store / "v9").mkdir()
    (store / "notes").mkdir()
    gone = store / "v2" / "tmp" / "1-abc"
    gone.mkdir()
    os.utime(gone, (1, 1))
    info = cache_json(run, "gc")
    assert info["formats"] == ["v1"]
    assert info["workspaces"] == 1
    assert (info["objects"], info["removed_bytes"]) == (0, 5)
    assert not (store / "v1").exists()
    assert (store / "v9").exists(), "that of a newer version"
    assert (store / "notes").exists(), "none of ours"
    assert objects(store) == before


def test_gc_keeps_recent_entries_and_enforces_the_limit(
    store: Path, built: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = objects(store)
    result = run("cache", "gc", "--max-size", "1KB")
    assert "entries used within the last hour are kept" in result.out
    assert objects(store) == before
    monkeypatch.setattr(eviction, "GRACE_SECONDS", -1)
    info = cache_json(run, "gc", "--max-size", "100KB")
    assert 0 < info["left_bytes"] <= 100_000
    assert info["objects"] == len(before) - len(objects(store))
    assert run("cache", "verify").code == 0
    assert run("build", built).code == 0


def test_gc_without_waiting_fails_during_a_build(store: Path, run: Run) -> None:
    release = share(store / "v2")
    result = run("cache", "gc", "--no-wait")
    assert (result.code, "being used by a build" in result.err) == (9, True)
    assert run("cache", "clear", "--no-wait").code == 9
    release()
    assert run("cache", "gc", "--no-wait").code == 0


@pytest.mark.parametrize("size", ["much", "-1", "5 XB", ""])
def test_invalid_size_is_refused(store: Path, run: Run, size: str) -> None:
    result = run("cache", "gc", f"--max-size={size}")
    assert result.code == 2
    assert "such as 5GB" in result.err


def test_max_size_requires_gc(run: Run) -> None:
    assert run("cache", "clear", "--max-size", "1KB").code == 2


def test_invalid_cache_limit_stops_the_build(
    built: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE_MAX", "lots")
    result = run("build", built, "--force")
    assert result.code == 2
    assert "MOBILEPREP_CACHE_MAX" in result.err


def test_verify_removes_damaged_entries(store: Path, built: Path, run: Run) -> None:
    result = run("cache", "verify")
    assert (result.code, result.err) == (0, "")
    damaged = [objects(store)[0], objects(store)[1], records(store)[0], objects(store)[2]]
    damaged[0].write_bytes(b"")
    damaged[1].unlink()
    damaged[1].mkdir()
    damaged[2].write_text("{}")
    damaged[3].unlink()
    os.mkfifo(damaged[3])
    moved = records(store)[1]
    copy = moved.with_name(f"{'0' * 64}.json")
    shutil.copy(moved, copy)
    info = cache_json(run, "verify")
    assert sorted(info["damaged"]) == sorted(map(str, [*damaged, copy]))
    assert not any(os.path.lexists(path) for path in (*damaged, copy))
    assert info["incomplete"] > 0
    result = run("cache", "verify")
    assert result.code == 0
    assert "built again when needed" in result.out
    assert run("build", built, "--force").code == 0
    assert "need what is not there" not in run("cache", "verify").out


def test_verify_reports_entries_that_cannot_be_removed(
    store: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = objects(store)[0]
    damaged.write_bytes(b"")

    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    result = run("cache", "verify")
    assert (result.code, f"{damaged}: damaged, and cannot be removed\n" in result.out) == (4, True)
    assert cache_json(run, "verify")["stuck"] == [str(damaged)]


def test_verify_ignores_entries_changed_by_other_processes(
    store: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten, gone, record = objects(store)[0], objects(store)[1], records(store)[0]
    content = rewritten.read_bytes()
    rewritten.write_bytes(b"")
    real_match, real_judge = FileIndex.match_many, Store.is_record

    def match(index: FileIndex, entries: Iterable[tuple[Path, str, int]]) -> list[bool]:
        gone.unlink(missing_ok=True)
        matches = real_match(index, entries)
        rewritten.write_bytes(content)
        return matches

    def judge(judged: Store, path: Path) -> bool:
        record.unlink(missing_ok=True)
        return real_judge(judged, path)

    monkeypatch.setattr(FileIndex, "match_many", match)
    monkeypatch.setattr(Store, "is_record", judge)
    result = run("cache", "verify")
    assert (result.code, "damaged" in result.out) == (0, False)
    assert rewritten.read_bytes() == content


@pytest.mark.parametrize("name", ["v1", "v2"])
def test_clear_does_not_follow_symlinks(store: Path, run: Run, tmp_path: Path, name: str) -> None:
    run("cache", "clear")
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "file").write_bytes(bytes(5000))
    store.mkdir(exist_ok=True)
    (store / name).symlink_to(tmp_path / "big")
    result = run("cache", "clear")
    assert result.code == 0
    assert result.out == f"{store}: 0 bytes removed\n"
    assert f"{store / name} is a symlink: its target is kept" in result.err
    assert (tmp_path / "big" / "file").exists()
    assert not (store / name).is_symlink()


def test_clear_removes_only_cache_formats(store: Path, built: Path, run: Run) -> None:
    (store / "v1").mkdir()
    (store / "notes").write_text("mine")
    info = cache_json(run, "clear")
    assert info["formats"] == ["v1", "v2"]
    assert info["removed_bytes"] > 1000
    assert sorted(p.name for p in store.iterdir()) == ["notes"]
    assert "there is nothing" in run("cache", "clear").out
    assert run("build", built).code == 0


def test_file_in_place_of_the_cache_is_reported(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "file"))
    for action in ("info", "gc", "verify", "clear"):
        result = run("cache", action)
        assert (result.code, "MOBILEPREP_CACHE" in result.err) == (4, True)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 KB"), (96 * 10**6, "96.0 MB")],
)
def test_sizes_are_formatted_with_units(count: int, text: str) -> None:
    assert size_text(count) == text
