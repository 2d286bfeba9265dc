"""When a digest that was taken before still counts."""

from __future__ import annotations

import json
import mmap
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from msgspec import structs, to_builtins
from msgspec.structs import astuple

from mobileprep.building.pipeline import file_index
from mobileprep.building.pipeline.cache_files import seal, unseal
from mobileprep.building.pipeline.file_index import (
    MARGIN_NS,
    FileIndex,
    FileStamp,
    IndexEntry,
    load_entries,
)
from mobileprep.core.files import sha256_bytes
from mobileprep.errors import CorruptFileError

SECOND = 1_000_000_000
OLD, NEW = b"old bytes", b"new bytes"  # of one size


class Bench:
    """Runs that follow each other on one index, with a margin that does not keep one waiting.

    Nothing pretends that time passes: whether a change shows depends on the system's own clock.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.index = folder / "store" / "index.json"
        self.model = folder / "model.pb"
        self.model.write_bytes(OLD)
        self.ahead = 0
        self.hashed = 0
        coarse = self.model.stat().st_ctime_ns % SECOND == 0
        self.margin = 2 * SECOND if coarse else SECOND // 10
        now, hash_stream = file_index.time_ns, file_index.sha256_stream

        def counted(stream) -> str:
            self.hashed += 1
            return hash_stream(stream)

        patch.setattr(file_index, "MARGIN_NS", self.margin)
        patch.setattr(file_index, "time_ns", lambda: now() + self.ahead)
        patch.setattr(file_index, "sha256_stream", counted)

    def wait(self) -> None:
        """Sleep until every file is older than the margin."""
        newest = max(p.lstat().st_ctime_ns for p in self.model.parent.iterdir())
        time.sleep(max(0, newest + 1.2 * self.margin - time.time_ns()) / SECOND)

    def run(self, *, later: bool = True, checksum: bool = False) -> FileIndex:
        """The index of a new run, at once or when all files are old enough."""
        if later:
            self.wait()
        return FileIndex(self.index, checksum=checksum)

    def digest(self, *, later: bool = True) -> str:
        """The model's digest in a run of its own."""
        index = self.run(later=later)
        found = index.digest(self.model)
        index.save()
        return found

    def hashes(self, do: Callable[[], object]) -> int:
        """How many files are hashed by it."""
        before = self.hashed
        do()
        return self.hashed - before

    def real(self) -> str:
        return sha256_bytes(self.model.read_bytes())

    def settle(self) -> None:
        """Make the index trust the model, and make sure that it does."""
        assert self.digest() == self.real()
        assert self.hashes(self.digest) == 0


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    # The rules, wherever the tests lie; what file systems tell has tests of its own.
    return Bench(tmp_path, monkeypatch)


def times(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_atime_ns, found.st_mtime_ns


def test_an_unchanged_file_is_hashed_once(bench: Bench) -> None:
    assert bench.hashes(bench.digest) == 1
    assert bench.hashes(bench.digest) == 0
    assert bench.digest() == sha256_bytes(OLD)


def test_an_index_in_memory_serves_its_own_run(bench: Bench) -> None:
    bench.wait()
    index = FileIndex(None)
    assert bench.hashes(lambda: [index.digest(bench.model) for _ in range(3)]) == 1
    index.save()
    assert not bench.index.exists()


def test_a_relative_path_is_the_same_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.settle()
    monkeypatch.chdir(bench.model.parent)
    assert bench.hashes(lambda: bench.run().digest(Path("model.pb"))) == 0


# -- edits that try to go unseen


def edit_in_place(path: Path) -> None:
    kept = times(path)
    path.write_bytes(NEW)
    os.utime(path, ns=kept)


def edit_through_a_mapping(path: Path) -> None:
    kept = times(path)
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as view:
        view[:] = NEW
    os.utime(path, ns=kept)


def edit_by_another_name(path: Path) -> None:
    kept = times(path)
    other = path.with_name("other")
    os.link(path, other)
    other.write_bytes(NEW)
    other.unlink()
    os.utime(path, ns=kept)


def copy_preserving(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(NEW)
    os.utime(other, ns=times(path))
    subprocess.run(["cp", "-p", other, path], check=True)


def touch_by_reference(path: Path) -> None:
    reference = path.with_name("reference")
    subprocess.run(["touch", "-r", path, reference], check=True)
    path.write_bytes(NEW)
    subprocess.run(["touch", "-r", reference, path], check=True)


def restore_by_rename(path: Path) -> None:
    backup, other = path.with_name("backup"), path.with_name("other")
    other.write_bytes(NEW)
    os.utime(other, ns=times(path))
    shutil.copy2(other, backup)
    backup.replace(path)


def restore_by_tar(path: Path) -> None:
    other = path.with_name("saved") / path.name
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(NEW)
    os.utime(other, ns=times(path))
    packed = ["tar", "--format=posix", "-cpf", "backup.tar", "-C", "saved", path.name]
    subprocess.run(packed, cwd=path.parent, check=True)
    subprocess.run(["tar", "-xpf", "backup.tar"], cwd=path.parent, check=True)


def put_a_link_in_its_place(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(NEW)
    os.utime(other, ns=times(path))
    path.unlink()
    path.symlink_to(other)


def swap_with_another(path: Path) -> None:
    other, third = path.with_name("other"), path.with_name("third")
    other.write_bytes(NEW)
    os.utime(other, ns=times(path))
    path.replace(third)
    other.replace(path)


def take_over_the_inode(path: Path) -> None:
    kept = times(path)
    path.unlink()  # ext4 gives the number to the next file of the folder
    path.write_bytes(NEW)
    os.utime(path, ns=kept)


EDITS = [
    edit_in_place,
    edit_through_a_mapping,
    edit_by_another_name,
    copy_preserving,
    touch_by_reference,
    restore_by_rename,
    restore_by_tar,
    put_a_link_in_its_place,
    swap_with_another,
    take_over_the_inode,
]
unix = pytest.mark.skipif(sys.platform == "win32", reason="cp, touch, tar, links")


@pytest.mark.slow
@unix
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_an_edit_that_keeps_size_and_mtime_is_seen(bench: Bench, edit) -> None:
    bench.settle()
    kept = times(bench.model)[1], bench.model.stat().st_size
    edit(bench.model)
    found = bench.model.stat()
    assert (found.st_mtime_ns, found.st_size) == kept
    assert bench.digest() == sha256_bytes(NEW)
    assert not bench.run().matches(bench.model, sha256_bytes(OLD), len(OLD))


@unix
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_an_edit_in_the_clock_tick_of_the_hash_is_seen_by_the_next_run(
    bench: Bench, edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the stamp were that of before the edit: the clock had not moved on.
    assert bench.digest(later=False) == sha256_bytes(OLD)
    before = FileStamp.of(bench.model.stat())
    edit(bench.model)
    monkeypatch.setattr(FileStamp, "of", lambda _: before)
    assert bench.digest() == sha256_bytes(NEW)


def test_a_link_that_turns_leads_to_another_digest(bench: Bench) -> None:
    bench.model.rename(bench.model.with_name("one"))
    bench.model.with_name("two").write_bytes(NEW)
    bench.model.symlink_to("one")
    bench.settle()
    bench.model.unlink()
    bench.model.symlink_to("two")
    assert bench.digest() == sha256_bytes(NEW)


def test_a_file_that_became_a_folder_cannot_be_read(bench: Bench) -> None:
    bench.settle()
    bench.model.unlink()
    bench.model.mkdir()
    with pytest.raises(CorruptFileError, match=r"model\.pb: is a directory"):
        bench.digest()
    assert not bench.run().matches(bench.model, sha256_bytes(OLD), len(OLD))


def test_a_missing_file_is_an_error_and_matches_nothing(bench: Bench) -> None:
    bench.settle()
    bench.model.unlink()
    with pytest.raises(CorruptFileError, match="No such file"):
        bench.digest()
    with pytest.raises(CorruptFileError, match="No such file"):
        bench.run().digest_many([bench.model])
    assert not bench.run().matches(bench.model, sha256_bytes(OLD), len(OLD))
    assert not bench.run().matches(Path("a\0b"), sha256_bytes(OLD), len(OLD))


# -- clocks


def stamped(path: Path, **changed: int) -> FileStamp:
    found = dict(zip(FileStamp.__annotations__, astuple(FileStamp.of(path.stat())), strict=True))
    return FileStamp(**{**found, **changed})


@pytest.mark.parametrize(
    ("before", "trusted"), [(0, False), (1.9, False), (2, True), (-3600, False)]
)
@pytest.mark.parametrize("of", ["mtime_ns", "ctime_ns"])
def test_times_must_be_older_than_the_hash_by_two_seconds(
    tmp_path: Path, of: str, before: float, trusted: bool
) -> None:
    (tmp_path / "model.pb").write_bytes(OLD)
    moment = 2_000_000_000 * SECOND
    times = {"mtime_ns": SECOND, "ctime_ns": SECOND, of: moment - int(before * SECOND)}
    entry = IndexEntry(sha256_bytes(OLD), moment, stamped(tmp_path / "model.pb", **times))
    assert entry.settled(moment) is trusted
    assert not entry.settled(moment - 1)


def test_a_fresh_file_is_hashed_again_until_it_was_hashed_late_enough(bench: Bench) -> None:
    bench.wait()
    bench.model.write_bytes(OLD)
    assert [bench.hashes(lambda: bench.digest(later=False)) for _ in range(2)] == [1, 1]
    assert [bench.hashes(bench.digest) for _ in range(3)] == [1, 0, 0]


def test_digest_from_the_future_is_not_trusted(bench: Bench) -> None:
    bench.settle()
    bench.ahead = -1000 * SECOND
    assert bench.hashes(bench.digest) == 1


def test_after_the_clock_was_set_back_an_edit_is_seen(bench: Bench) -> None:
    bench.settle()
    bench.ahead = -5000 * SECOND
    edit_in_place(bench.model)
    assert bench.digest() == sha256_bytes(NEW)
    bench.ahead = 5000 * SECOND
    assert bench.digest() == sha256_bytes(NEW)


def test_a_file_with_a_time_in_the_future_is_always_hashed(bench: Bench) -> None:
    ahead = bench.model.stat().st_mtime_ns + 10**6 * SECOND
    os.utime(bench.model, ns=(ahead, ahead))
    assert [bench.hashes(bench.digest) for _ in range(3)] == [1, 1, 1]


# -- within one run


def test_a_file_that_changes_while_it_is_hashed_is_not_recorded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    hash_stream = file_index.sha256_stream

    def disturbed(stream) -> str:
        found = hash_stream(stream)
        bench.model.write_bytes(NEW + b"!")
        return found

    index = bench.run()
    with monkeypatch.context() as patch:
        patch.setattr(file_index, "sha256_stream", disturbed)
        assert index.digest(bench.model) == sha256_bytes(OLD)
    assert not index.unchanged(bench.model)
    index.save()
    assert bench.hashes(bench.digest) == 1
    assert bench.digest() == bench.real()


def test_changed_input_is_detected(bench: Bench) -> None:
    index = bench.run()
    assert not index.unchanged(bench.model)  # its digest was not asked for
    index.digest(bench.model)
    assert index.unchanged(bench.model)
    edit_in_place(bench.model)
    assert not index.unchanged(bench.model)
    # Whoever asks again gets the new digest, but an earlier answer was another.
    assert index.digest(bench.model) == sha256_bytes(NEW)
    assert not index.unchanged(bench.model)


def test_restored_input_is_detected_as_changed(bench: Bench) -> None:
    index = bench.run()
    index.digest(bench.model)
    edit_in_place(bench.model)
    bench.model.write_bytes(OLD)
    assert index.digest(bench.model) == sha256_bytes(OLD)
    assert not index.unchanged(bench.model)


def test_removed_input_is_detected(bench: Bench) -> None:
    index = bench.run()
    index.digest(bench.model)
    bench.model.unlink()
    assert not index.unchanged(bench.model)


def test_written_file_is_hashed_once_by_the_next_run(bench: Bench) -> None:
    index = bench.run()
    index.digest(bench.model)
    bench.model.write_bytes(NEW)
    index.note(bench.model, sha256_bytes(NEW))
    assert index.unchanged(bench.model)
    assert bench.hashes(lambda: index.matches(bench.model, sha256_bytes(NEW), len(NEW))) == 0
    index.save()
    assert [bench.hashes(bench.digest) for _ in range(3)] == [1, 0, 0]


def test_an_edit_between_writing_and_noting_is_seen_by_the_next_run(bench: Bench) -> None:
    index = bench.run()
    bench.model.write_bytes(OLD)
    edit_in_place(bench.model)
    bench.wait()
    index.note(bench.model, sha256_bytes(OLD))
    index.save()
    assert bench.digest() == sha256_bytes(NEW)


def test_edited_file_is_hashed_after_noting(bench: Bench) -> None:
    index = bench.run()
    index.note(bench.model, sha256_bytes(OLD))
    edit_in_place(bench.model)
    assert index.digest(bench.model) == sha256_bytes(NEW)
    assert not index.unchanged(bench.model)


def freeze_stamp(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    """From now on every change falls into one step of the clock."""
    stamp = FileStamp.of(bench.model.stat())
    patch.setattr(FileStamp, "of", lambda _: stamp)


def test_a_fresh_file_is_hashed_each_time_within_a_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = bench.run(later=False)
    assert index.digest(bench.model) == sha256_bytes(OLD)
    freeze_stamp(bench, monkeypatch)
    bench.model.write_bytes(NEW)
    assert index.digest(bench.model) == sha256_bytes(NEW)


def test_a_noted_file_that_another_has_edited_is_noted_no_longer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = bench.run()
    index.note(bench.model, sha256_bytes(OLD))
    edit_in_place(bench.model)
    assert index.digest(bench.model) == sha256_bytes(NEW)
    freeze_stamp(bench, monkeypatch)
    bench.model.write_bytes(OLD)
    assert index.digest(bench.model) == sha256_bytes(OLD)


def test_a_digest_of_bytes_in_motion_does_not_count_even_for_the_same_stamp(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = bench.run()
    still = FileStamp.of(bench.model.stat())
    stamps = iter([still, still, stamped(bench.model, mtime_ns=1)])
    monkeypatch.setattr(FileStamp, "of", lambda _: next(stamps, still))
    index.digest(bench.model)
    index.save()
    assert bench.hashes(bench.digest) == 1


def test_noting_a_file_that_has_gone_is_nothing(bench: Bench) -> None:
    index = bench.run()
    bench.model.unlink()
    index.note(bench.model, sha256_bytes(OLD))
    assert not index.unchanged(bench.model)


# -- what matches


def test_matching_looks_at_kind_and_size_before_bytes(bench: Bench) -> None:
    index = bench.run()
    link = bench.model.with_name("link")
    link.symlink_to(bench.model)
    other_size = (bench.model, sha256_bytes(OLD), len(OLD) + 1)
    a_link = (link, sha256_bytes(OLD), len(OLD))
    a_folder = (bench.model.parent, sha256_bytes(OLD), bench.model.parent.stat().st_size)
    for wanted in (other_size, a_link, a_folder):
        assert bench.hashes(lambda: index.matches(*wanted)) == 0  # noqa: B023
        assert not index.matches(*wanted)
    assert index.matches(bench.model, sha256_bytes(OLD), len(OLD))
    assert not index.matches(bench.model, sha256_bytes(NEW), len(NEW))


@unix
def test_a_pipe_matches_nothing_and_is_not_waited_for(bench: Bench) -> None:
    pipe = bench.model.with_name("pipe")
    os.mkfifo(pipe)
    assert not bench.run().matches(pipe, sha256_bytes(b""), 0)


def test_many_files_are_answered_as_one_by_one(bench: Bench) -> None:
    paths = [bench.model.with_name(f"file{i}") for i in range(20)]
    for i, path in enumerate(paths):
        path.write_bytes(bytes(i))
    index = bench.run()
    assert bench.hashes(lambda: index.digest_many(paths)) == 20
    assert index.digest_many(paths) == {p: sha256_bytes(p.read_bytes()) for p in paths}
    index.save()
    missing = (bench.model.with_name("missing"), sha256_bytes(b""), 0)
    wanted = [(p, sha256_bytes(bytes(7)), i) for i, p in enumerate(paths)]
    for checksum, hashes in ((False, 0), (True, 20)):
        again = bench.run(checksum=checksum)
        answers: list[bool] = []
        asked = [*wanted, missing, *wanted]
        assert bench.hashes(lambda: answers.extend(again.match_many(asked))) in (hashes, 2 * hashes)  # noqa: B023
        assert answers == [i == 7 for i in range(20)] + [False] + [i == 7 for i in range(20)]


# -- checksum


def test_checksum_hashes_everything_once_in_a_run(bench: Bench) -> None:
    bench.settle()
    for _ in range(2):
        index = bench.run(checksum=True)
        assert bench.hashes(lambda: [index.digest(bench.model) for _ in range(3)]) == 1  # noqa: B023
        index.save()
    assert bench.hashes(bench.digest) == 0


def test_changed_inode_numbers_are_ignored_during_a_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = bench.run()
    index.digest(bench.model)
    stamp = stamped(bench.model, inode=12345)
    monkeypatch.setattr(FileStamp, "of", lambda _: stamp)
    assert index.unchanged(bench.model)


# -- the file of the index


def test_an_index_without_news_is_not_written(bench: Bench) -> None:
    bench.settle()
    before = FileStamp.of(bench.index.stat())
    bench.digest()
    assert FileStamp.of(bench.index.stat()) == before


def test_entries_of_files_that_are_gone_are_dropped(bench: Bench) -> None:
    others = [bench.model.with_name(name) for name in ("kept", "gone")]
    for path in others:
        path.write_bytes(OLD)
    index = bench.run()
    index.digest_many(others)
    index.save()
    others[1].unlink()
    bench.digest()
    paths = unseal("file index 2", bench.index.read_bytes())
    assert sorted(paths) == sorted(map(str, (bench.model, others[0])))


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
def test_file_names_of_any_bytes_are_indexed(bench: Bench) -> None:
    odd = Path(os.fsdecode(os.fsencode(bench.model.parent) + b'/a\nb\xff"\\ c'))
    odd.write_bytes(OLD)
    index = bench.run()
    index.digest(odd)
    index.save()
    assert bench.hashes(lambda: bench.run().digest(odd)) == 0


def texts(bench: Bench) -> list[bytes]:
    """Index files that are damaged, hostile, or of another format."""
    good = bench.index.read_bytes()
    data = unseal("file index 2", good)
    ((path, (sha256, moment, stamp)),) = data.items()
    odd: list[object] = [
        None, 3, "text", [], {}, [path], {path: []}, {path: None}, {path: {"a": 1}},
        {path: [sha256, moment]}, {path: [sha256, -1, stamp]}, {path: [sha256, 1e30, stamp]},
        {path: [sha256, int("9" * 500), stamp]}, {path: [sha256[1:], moment, stamp]},
        {path: [sha256.upper() + "A", moment, stamp]}, {path: [sha256, moment, stamp[1:]]},
        {path: [sha256, moment, [*stamp[:4], str(stamp[4])]]},
        {"\0": [sha256, moment, stamp], "x" * 5000: [sha256, moment, stamp]},
    ]  # fmt: skip
    return [
        b"", b"{", b"[" * 100_000, b"\xff\xfe", b"null", good[:-1], good[: len(good) // 2],
        good.replace(sha256[:8].encode(), b"00000000"), good.replace(b"index 2", b"index 1"),
        seal("file index 1", data), json.dumps(data).encode(),
        *(seal("file index 2", each) for each in odd),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_damaged_index_or_one_of_another_format_is_empty(bench: Bench) -> None:
    bench.settle()
    for text in texts(bench):
        bench.index.write_bytes(text)
        assert bench.hashes(lambda: bench.digest() == bench.real()) == 1, text
        assert bench.hashes(bench.digest) == 0, text


@pytest.mark.parametrize("kind", ["folder", "link to itself", "below a file"])
def test_unwritable_index_is_ignored(bench: Bench, kind: str) -> None:
    if kind == "below a file":
        bench.index.parent.write_bytes(b"")
    else:
        bench.index.parent.mkdir()
        bench.index.mkdir() if kind == "folder" else bench.index.symlink_to(bench.index)
    assert bench.digest() == bench.real()
    assert bench.digest() == bench.real()


def save_many(arguments: tuple[Path, list[Path]]) -> None:
    index, files = arguments
    file_index.MARGIN_NS = 0  # in a process of its own
    for _ in range(20):
        one = FileIndex(index, checksum=True)  # moments differ, so that each is written
        one.digest_many(files)
        one.save()


def test_processes_that_save_at_once_leave_one_whole_index(bench: Bench, tmp_path: Path) -> None:
    files = [tmp_path / f"file{i}" for i in range(40)]
    for i, path in enumerate(files):
        path.write_bytes(bytes(i))
    bench.wait()
    work = [(bench.index, files[i:]) for i in range(4)]
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        list(pool.map(save_many, work))
    # Whoever saved last, these are in it.
    index = bench.run()
    assert bench.hashes(lambda: index.digest_many(files[3:])) == 0
    assert index.digest_many(files) == {p: sha256_bytes(p.read_bytes()) for p in files}
    assert list(bench.index.parent.iterdir()) == [bench.index]


def test_threads_share_an_index(bench: Bench, tmp_path: Path) -> None:
    files = [tmp_path / f"file{i}" for i in range(50)]
    for i, path in enumerate(files):
        path.write_bytes(bytes(i))
    index = bench.run()

    def work(_: int) -> list[str]:
        found = [index.digest(path) for path in files]
        index.save()
        return found

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(work, range(16)))
    assert answers == [[sha256_bytes(p.read_bytes()) for p in files]] * 16


# -- anything at all


@pytest.mark.slow
@unix
@pytest.mark.parametrize("seed", range(20))
def test_a_digest_is_always_that_of_the_bytes(bench: Bench, seed: int) -> None:
    dice = random.Random(seed)
    content = (OLD, NEW, b"other", b"")

    def rewrite(path: Path) -> None:
        path.write_bytes(dice.choice(content))

    def replace(path: Path) -> None:
        path.with_name("other").write_bytes(dice.choice(content))
        path.with_name("other").replace(path)

    def utime(path: Path) -> None:
        os.utime(path, ns=(0, dice.choice((0, SECOND, first, 2 * first))))

    def wait(_: Path) -> None:
        time.sleep(dice.choice((0, 0.01, 1.2 * bench.margin / SECOND)))

    first = bench.model.stat().st_mtime_ns
    actions = [rewrite, replace, utime, wait, edit_in_place, restore_by_rename, swap_with_another]
    index = bench.run(later=False)
    for _ in range(40):
        for _ in range(dice.randrange(3)):
            dice.choice(actions)(bench.model)
        if dice.random() < 0.5:
            index.save()
            index = bench.run(later=dice.random() < 0.3, checksum=dice.random() < 0.1)
        assert index.digest(bench.model) == bench.real()
        wanted = dice.choice(content)
        holds = index.matches(bench.model, sha256_bytes(wanted), len(wanted))
        assert holds == (wanted == bench.model.read_bytes())


STAMP = FileStamp(1, 2, 3, 1_000, 2_000)
ENTRY = IndexEntry("a" * 64, 2_000 + MARGIN_NS, STAMP)
PLAIN = to_builtins(ENTRY)


def test_stamp_matches_stat(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    facts = (tmp_path / "file").stat()
    numbers = (facts.st_dev, facts.st_ino, 3, facts.st_mtime_ns, facts.st_ctime_ns)
    assert structs.astuple(FileStamp.of(facts)) == numbers


def test_an_entry_is_settled_once_no_change_can_have_its_times() -> None:
    moment = ENTRY.moment
    assert ENTRY.settled(moment)
    assert ENTRY.settled(moment + 1)
    assert not ENTRY.settled(moment - 1), "the clock was set back"
    assert not structs.replace(ENTRY, moment=moment - 1).settled(moment)
    newer = structs.replace(STAMP, mtime_ns=2_001)
    assert not structs.replace(ENTRY, stamp=newer).settled(moment)
    assert not structs.replace(ENTRY, moment=0).settled(moment)


def test_entries_come_back_from_their_file(tmp_path: Path) -> None:
    before_1970 = structs.replace(ENTRY, stamp=structs.replace(STAMP, mtime_ns=-5))
    entries = {"/a": ENTRY, "/b \udcff": before_1970}
    (tmp_path / "index.json").write_bytes(seal("file index 2", to_builtins(entries)))
    assert load_entries(tmp_path / "index.json") == entries


@pytest.mark.parametrize(
    "data",
    [
        *(None, [], 5, {"/a": None}, {"/a": "one"}, {"/a": PLAIN[:2]}, {"/a": {}}),
        {"/a": ["A" * 64, *PLAIN[1:]]},
        {"/a": ["a" * 63, *PLAIN[1:]]},
        {"/a": [PLAIN[0], -1, PLAIN[2]]},
        {"/a": [PLAIN[0], 1.5, PLAIN[2]]},
        {"/a": [PLAIN[0], int("9" * 400), PLAIN[2]]},
        {"/a": [*PLAIN[:2], [1, 2, 3]]},
        {"/a": [*PLAIN[:2], ["1", 2, 3, 4, 5]]},
    ],
)
def test_a_file_of_another_form_has_no_entries(tmp_path: Path, data: object) -> None:
    path = tmp_path / "index.json"
    assert load_entries(path) == {}
    path.write_bytes(seal("file index 2", data))
    entries = load_entries(path)
    assert not any(entry.settled(1 << 62) for entry in entries.values())
    path.write_bytes(seal("file index 1", {"/a": PLAIN}))
    assert load_entries(path) == {}
