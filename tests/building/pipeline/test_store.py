"""The content-addressed store."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mobileprep.building.pipeline.cache_files import default_folder
from mobileprep.building.pipeline.file_index import FileIndex
from mobileprep.building.pipeline.output import LastRun, Output, Record, sweep, workspace_name
from mobileprep.building.pipeline.store import Objects, Store, is_mapped, unwritable
from mobileprep.core.files import canonical, sha256_bytes
from mobileprep.errors import ArtifactError, CorruptFileError, UsageError
from mobileprep.formats.parts import GRAPH, Part, between_bytes, index_bytes

OBJECT = {"sha256": "0" * 64, "size": 3}


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


def age(path: Path, days: float) -> None:
    """Set the times back, as if nothing had changed for so long."""
    then = time.time() - days * 24 * 3600
    for each in [*path.iterdir(), path] if path.is_dir() else [path]:
        os.utime(each, (then, then))


def test_names_are_new_each_time() -> None:
    assert len({workspace_name() for _ in range(100)}) == 100


def test_work_directories_are_removed_after_a_day_without_changes(tmp_path: Path) -> None:
    folder = tmp_path / workspace_name()
    folder.mkdir()
    (folder / "graph.pb").write_bytes(b"half")
    assert sweep(tmp_path) == 0
    age(folder, days=2)
    (folder / "graph.pb").write_bytes(b"still being written")
    assert sweep(tmp_path) == 0
    age(folder, days=2)
    assert sweep(tmp_path) == 1
    assert not list(tmp_path.iterdir())


def test_a_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "tmp"
    outside.mkdir()
    (outside / "kept").write_bytes(b"")
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    then = time.time() - 2 * 24 * 3600
    os.utime(folder / "link", (then, then), follow_symlinks=False)
    assert sweep(folder) == 1
    assert not list(folder.iterdir())
    assert (outside / "kept").exists()


def test_a_missing_folder_has_no_work_directories(tmp_path: Path) -> None:
    assert sweep(tmp_path / "missing") == 0


def test_several_may_sweep_at_once(tmp_path: Path) -> None:
    for _ in range(50):
        folder = tmp_path / workspace_name()
        folder.mkdir()
        (folder / "a").write_bytes(b"")
        age(folder, days=2)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(sweep, [tmp_path] * 8))
    assert not list(tmp_path.iterdir())


def test_a_time_ahead_of_the_clock_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "left").mkdir()
    age(tmp_path / "left", days=-2)
    assert sweep(tmp_path) == 1


ABC = Part(hashlib.sha256(b"abc").hexdigest(), 3)
EMPTY = Part(hashlib.sha256(b"").hexdigest(), 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def objects(folder: Path) -> Objects:
    return Objects(folder, FileIndex(None))


def anew(folder: Path) -> Objects:
    """The same store, as another process sees it."""
    return Objects(folder, FileIndex(None))


def test_pieces_are_stored_as_one_object(objects: Objects, folder: Path) -> None:
    assert objects.put([b"a", memoryview(b"bc")]) == ABC
    assert objects.path(ABC.sha256) == folder / "cas" / ABC.sha256[:2] / ABC.sha256
    assert objects.path(ABC.sha256).read_bytes() == b"abc"
    assert objects.put(iter([])) == EMPTY
    assert objects.path(EMPTY.sha256).read_bytes() == b""


def test_existing_object_is_not_rewritten(objects: Objects, folder: Path) -> None:
    objects.put([b"abc"])
    before = objects.path(ABC.sha256).stat()
    for store in (objects, anew(folder)):
        store.put([b"abc"])
        store.keep(ABC, b"abc")
    assert objects.path(ABC.sha256).stat().st_ino == before.st_ino


def test_damaged_object_is_rewritten(objects: Objects) -> None:
    objects.put([b"abc"])
    objects.path(ABC.sha256).write_bytes(b"abX")
    assert objects.put([b"abc"]) == ABC
    assert objects.path(ABC.sha256).read_bytes() == b"abc"


def test_object_is_mapped(objects: Objects) -> None:
    objects.put([b"abc"])
    view = objects.view(ABC)
    assert (bytes(view), view.readonly) == (b"abc", True)
    assert is_mapped(view)
    assert is_mapped(view[1:])
    assert objects.view(ABC).obj is view.obj


def test_nothing_cannot_be_mapped_and_is_seen_all_the_same(objects: Objects) -> None:
    assert bytes(objects.view(EMPTY)) == b""
    assert bytes(objects.keep(EMPTY, b"")) == b""


@pytest.mark.parametrize("data", [b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_bytes_of_this_process_are_not_mapped(data: bytes) -> None:
    assert not is_mapped(data)


def test_stored_bytes_are_viewed_from_the_cache(objects: Objects) -> None:
    kept = objects.keep(ABC, b"abc")
    assert is_mapped(kept)
    assert bytes(kept) == b"abc"
    assert objects.path(ABC.sha256).read_bytes() == b"abc"


def test_mapped_bytes_are_not_rewritten(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = objects.keep(ABC, b"abc")
    monkeypatch.setattr(objects, "_write", lambda *_: pytest.fail("it was written again"))
    assert objects.keep(ABC, kept).obj is kept.obj


def test_a_finished_file_moves_into_the_store(objects: Objects, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert objects.take(tmp_path / "file") == ABC
    assert not (tmp_path / "file").exists()
    assert bytes(objects.view(ABC)) == b"abc"


def test_a_folder_that_gets_a_second_object_is_there_already(
    objects: Objects, tmp_path: Path
) -> None:
    for _ in range(2):
        (tmp_path / "file").write_bytes(b"abc")
        assert objects.take(tmp_path / "file") == ABC


def test_an_object_is_placed_as_a_copy(objects: Objects, tmp_path: Path) -> None:
    objects.put([b"abc"])
    objects.place(ABC, tmp_path / "deeper" / "file")
    (tmp_path / "deeper" / "file").write_bytes(b"xyz")
    assert objects.path(ABC.sha256).read_bytes() == b"abc"


SPOILS: list[Callable[[Path], object]] = [
    lambda path: path.unlink(),
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(b"abX"),
    lambda path: path.write_bytes(b"abcd"),
    lambda path: (path.unlink(), path.mkdir()),
    lambda path: (path.rename(path.with_name("x")), path.symlink_to(path.with_name("x"))),
]


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("is_anew", [False, True])
def test_damaged_object_is_refused(
    objects: Objects,
    folder: Path,
    tmp_path: Path,
    spoil: Callable[[Path], object],
    is_anew: bool,
) -> None:
    objects.put([b"abc"])
    assert objects.holds(ABC)
    spoil(objects.path(ABC.sha256))
    seen = anew(folder) if is_anew else objects
    assert not seen.holds(ABC)
    for use in (lambda: seen.view(ABC), lambda: seen.place(ABC, tmp_path / "file")):
        with pytest.raises(CorruptFileError, match="object is missing or damaged") as caught:
            use()
        assert caught.value.where == str(objects.path(ABC.sha256))
        assert "build again" in caught.value.hint
    assert not (tmp_path / "file").exists()


def test_a_digest_does_not_vouch_for_another_length(objects: Objects) -> None:
    objects.put([b"abc"])
    for size in (2, 4, -3):
        other = Part(ABC.sha256, size)
        assert not anew(objects.path(ABC.sha256).parents[2]).holds(other)
        # Nor where this process knows the bytes: a record may tell a length of its own.
        assert not objects.holds(other)
        with pytest.raises(CorruptFileError, match="missing or damaged"):
            objects.view(other)


def test_missing_and_damaged_objects_are_listed(objects: Objects, folder: Path) -> None:
    kept = [objects.put([bytes([number]) * 1000]) for number in range(20)]
    objects.path(kept[3].sha256).write_bytes(b"x" * 1000)
    objects.path(kept[7].sha256).unlink()
    again = Objects(folder, FileIndex(None))
    assert again.absent([*kept, ABC, ABC]) == [kept[3], kept[7], ABC]
    assert again.absent([]) == []


def test_a_file_is_put_together_from_its_index(objects: Objects) -> None:
    big = objects.put([b"x" * 100])
    index = objects.put([between_bytes([b"<", b"-", ABC, big, b">", ABC])])
    objects.put([b"abc"])
    assert b"".join(objects.assemble(index)) == b"<-abc" + b"x" * 100 + b">abc"
    assert objects.parts(index) == (ABC, big, ABC)


def test_graph_index_has_parts_but_is_not_a_file(objects: Objects) -> None:
    index = objects.put([index_bytes(GRAPH, [ABC], [b"body"])])
    assert objects.parts(index) == (ABC,)
    with pytest.raises(CorruptFileError):
        list(objects.assemble(index))


def test_a_file_whose_part_is_gone_cannot_be_put_together(objects: Objects) -> None:
    index = objects.put([between_bytes([b"<", ABC])])
    with pytest.raises(CorruptFileError, match="object is missing or damaged") as caught:
        list(objects.assemble(index))
    assert caught.value.where == str(objects.path(ABC.sha256))


def test_invalid_index_is_refused(objects: Objects) -> None:
    part = objects.put([b"abc"])
    with pytest.raises(CorruptFileError, match="is not an index of parts") as caught:
        objects.parts(part)
    assert caught.value.where == str(objects.path(part.sha256))


def test_memory_that_was_let_go_is_read_again(objects: Objects) -> None:
    objects.put([b"abc"])
    view = objects.view(ABC)
    objects.let_go()
    assert bytes(view) == b"abc"


def test_a_store_that_cannot_be_written_says_so(folder: Path, tmp_path: Path) -> None:
    folder.write_text("a file where the store should be")
    store = Objects(folder, FileIndex(None))
    (tmp_path / "file").write_bytes(b"abc")
    for write in (
        lambda: store.put([b"abc"]),
        lambda: store.keep(ABC, b"abc"),
        lambda: store.take(tmp_path / "file"),
    ):
        with pytest.raises(ArtifactError, match="cannot be written") as caught:
            write()
        assert "MOBILEPREP_CACHE" in caught.value.hint
        assert caught.value.where.startswith(str(folder))


def test_system_error_is_reported(tmp_path: Path) -> None:
    told = unwritable(OSError(28, os.strerror(28)), tmp_path)
    assert told.message == "the store cannot be written: No space left on device"
    assert told.where == str(tmp_path)
    assert unwritable(OSError("odd"), tmp_path).message == "the store cannot be written: odd"
