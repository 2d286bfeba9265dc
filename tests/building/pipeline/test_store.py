"""The content-addressed store."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path

import pytest

from mobileprep.building.pipeline.cache_files import default_folder
from mobileprep.building.pipeline.output import LastRun, Output, Record
from mobileprep.building.pipeline.store import Store
from mobileprep.core.files import canonical, sha256_bytes
from mobileprep.errors import ArtifactError, UsageError

OBJECT = {"sha256": "0" * 64, "size": 3}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def taken(store: Store, data: bytes = b"abc") -> Output:
    folder = store.workspace()
    (folder / "left" / "file").write_bytes(data)
    output = store.take(folder / "left" / "file")
    shutil.rmtree(folder)
    return output


def test_object_path_contains_its_digest(store: Store, tmp_path: Path) -> None:
    output = taken(store)
    assert output == Output(sha256_bytes(b"abc"), 3)
    assert store.objects.path(output.sha256).read_bytes() == b"abc"
    assert store.obtain(output)
    store.publish(output, tmp_path / "out" / "file")
    assert (tmp_path / "out" / "file").read_bytes() == b"abc"


def test_equal_objects_are_one(store: Store) -> None:
    assert taken(store) == taken(store)
    assert len(list((store.folder / "cas").rglob("*"))) == 2  # a folder and a file


def test_a_published_file_is_a_copy(store: Store, tmp_path: Path) -> None:
    output = taken(store)
    store.publish(output, tmp_path / "file")
    (tmp_path / "file").write_bytes(b"xyz")
    assert store.obtain(output)


@pytest.mark.parametrize("data", [b"", b"abd", b"abcd"])
def test_a_damaged_object_is_not_held(store: Store, data: bytes) -> None:
    output = taken(store)
    store.objects.path(output.sha256).write_bytes(data)
    assert not store.obtain(output)


def test_a_missing_object_is_not_held(store: Store) -> None:
    assert not store.obtain(Output("0" * 64, 3))


def test_records_come_back(store: Store) -> None:
    record = Record({"stage": "freeze"}, {"graph.pb": Output("ab" * 32, 3)}, 1.5)
    store.save("f" * 64, record)
    assert store.load("f" * 64) == record
    assert store.load("e" * 64) is None
    store.save_last_run("k" * 64, record)
    assert store.last_run("k" * 64) == LastRun({"stage": "freeze"}, 1.5, 3)
    assert store.last_run("l" * 64) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        '{"components": {}, "outputs": {}, "seconds": 1}',
        '{"key": "", "data": {}, "sha256": 5}',
        "[" * 100_000,
        "\x00\xff",
    ],
)
def test_a_damaged_record_is_none(store: Store, text: str) -> None:
    store.save("f" * 64, Record({}, {}, 0))
    (path,) = (store.folder / "ac").rglob("*.json")
    path.write_text(text, encoding="latin-1")
    assert store.load("f" * 64) is None


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "x",
        {"outputs": {}},
        {"components": [], "outputs": {}, "seconds": 1},
        {"components": {}, "outputs": [], "seconds": 1},
        {"components": {}, "outputs": {}, "seconds": "x"},
        {"components": {}, "outputs": {}, "seconds": math.nan},
        {"components": {}, "outputs": {}, "seconds": math.inf},
        {"components": {}, "outputs": {}, "seconds": -1},
        {"components": {}, "outputs": {}, "seconds": 10**400},
        {"components": {}, "outputs": {"a": 5}, "seconds": 1},
        {"components": {}, "outputs": {"a": {"sha256": "0" * 64}}, "seconds": 1},
        {"components": {}, "outputs": {"a": {"sha256": "0" * 64, "size": "3"}}, "seconds": 1},
        {"components": {}, "outputs": {"a": {"sha256": "0" * 64, "size": True}}, "seconds": 1},
        {"components": {}, "outputs": {"a": {"sha256": "../" * 9, "size": 3}}, "seconds": 1},
        {"components": {}, "outputs": {"a": {**OBJECT, "index": 5}}, "seconds": 1},
        {"components": {}, "outputs": {"a": {**OBJECT, "index": {"size": 3}}}, "seconds": 1},
        {"components": {}, "outputs": {"a": {**OBJECT, "text": "abc"}}, "seconds": 1},
        {"components": {}, "outputs": {"a": {**OBJECT, "text": 5}}, "seconds": 1},
    ],
)
def test_a_record_of_wrong_types_is_none_though_its_digest_fits(store: Store, data: object) -> None:
    text = {"key": "f" * 64, "data": data}
    body = canonical(text)
    whole = f"{sha256_bytes(body.encode())}\n{body}"
    path = store.folder / "ac" / "ff" / f"{'f' * 64}.json"
    path.parent.mkdir(parents=True)
    path.write_text(whole)
    assert store.load("f" * 64) is None


def test_a_record_that_was_edited_or_moved_is_none(store: Store) -> None:
    store.save("f" * 64, Record({}, {"graph.pb": Output("ab" * 32, 3)}, 0))
    (path,) = (store.folder / "ac").rglob("*.json")
    moved = store.folder / "ac" / "ee" / f"{'e' * 64}.json"
    moved.parent.mkdir()
    moved.write_bytes(path.read_bytes())
    assert store.load("f" * 64) is not None
    assert store.load("e" * 64) is None
    path.write_text(path.read_text().replace("ab" * 32, "cd" * 32))
    assert store.load("f" * 64) is None


def test_edited_reasons_are_none(store: Store) -> None:
    store.save_last_run("f" * 64, Record({"stage": "freeze"}, {}, 0))
    (path,) = (store.folder / "latest").rglob("*.json")
    path.write_text(path.read_text().replace("freeze", "thaw"))
    assert store.last_run("f" * 64) is None


def test_workspaces_are_apart_and_private_to_the_store(store: Store) -> None:
    folders = {store.workspace() for _ in range(20)}
    assert len(folders) == 20
    assert all(f.is_dir() and store.folder in f.parents for f in folders)


def in_the_way(folder: Path) -> None:
    folder.write_text("a file where the store should be")


def read_only(folder: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("nothing is read-only to the superuser")
    folder.mkdir()
    folder.chmod(0o500)


@pytest.mark.parametrize("spoil", [in_the_way, read_only])
def test_unwritable_cache_error_has_a_hint(tmp_path: Path, spoil: object) -> None:
    store = Store(tmp_path / "store")
    spoil(tmp_path / "store")  # type: ignore[operator]
    (tmp_path / "file").write_text("x")
    for write in (
        store.workspace,
        lambda: store.take(tmp_path / "file"),
        lambda: store.save("f" * 64, Record({}, {}, 0)),
        lambda: store.save_last_run("f" * 64, Record({}, {}, 0)),
    ):
        with pytest.raises(ArtifactError, match="cannot be written") as caught:
            write()
        assert "MOBILEPREP_CACHE" in caught.value.hint
        assert caught.value.where.startswith(str(tmp_path / "store"))


def test_cache_directory_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path))
    assert default_folder() == tmp_path
    monkeypatch.setenv("MOBILEPREP_CACHE", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "mobileprep"


def test_missing_home_directory_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.delenv("MOBILEPREP_CACHE", raising=False)
    with pytest.raises(UsageError, match="no home folder") as caught:
        default_folder()
    assert caught.value.hint == "set MOBILEPREP_CACHE to a folder for the store"
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path))
    assert default_folder() == tmp_path
