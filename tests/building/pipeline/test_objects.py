"""The objects of a store: bytes by their sha256."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mobileprep.building.pipeline.file_index import FileIndex
from mobileprep.building.pipeline.store import Objects, is_mapped, unwritable
from mobileprep.errors import ArtifactError, CorruptFileError
from mobileprep.formats.parts import GRAPH, Part, between_bytes, index_bytes

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
