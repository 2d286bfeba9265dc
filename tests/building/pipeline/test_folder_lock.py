"""Output folders that one build at a time works on, between processes and within one."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mobileprep.building.pipeline import folder_lock
from mobileprep.building.pipeline.folder_lock import folder_locks, lock_file, this_process
from mobileprep.errors import ArtifactError

HOLD = """
import sys
from pathlib import Path
from mobileprep.building.pipeline import folder_lock
if sys.argv[1] == "claim":
    folder_lock.try_lock = lambda _: None
with folder_lock.folder_locks([Path(p) for p in sys.argv[2:]], wait=True, tell=print):
    print("held", flush=True)
    sys.stdin.read()
"""
Hold = Callable[..., subprocess.Popen[str]]


@pytest.fixture(params=["lock", "claim"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the system's locks, and on a file system that has none."""
    if request.param == "claim":
        monkeypatch.setattr(folder_lock, "try_lock", lambda _: None)
    return str(request.param)


@pytest.fixture
def hold(kind: str) -> Iterator[Hold]:
    """Starts processes that hold folders until their input is closed."""
    started: list[subprocess.Popen[str]] = []

    def start(*folders: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, kind, *map(str, folders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*"))


def nobody(sentence: str) -> None:
    pytest.fail(sentence)


def test_a_lock_lies_beside_its_folder_while_it_is_held(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "out" / "digits" / "phone"
    with folder_locks([folder], wait=False, tell=nobody):
        assert names(tmp_path / "out" / "digits") == [f".phone.{kind}"]
    assert names(tmp_path) == []


def test_a_folder_that_another_process_holds_is_refused_naming_it(
    tmp_path: Path, hold: Hold
) -> None:
    holder = hold(tmp_path / "out")
    with (
        pytest.raises(ArtifactError, match=rf"process {holder.pid} on \S+ since .* \(-c"),
        folder_locks([tmp_path / "out"], wait=False, tell=nobody),
    ):
        pytest.fail("it is held")
    with folder_locks([tmp_path / "other"], wait=False, tell=nobody):
        pass


def test_who_waits_says_so_once_and_goes_on_when_the_holder_ends(
    tmp_path: Path, hold: Hold
) -> None:
    holder = hold(tmp_path / "a", tmp_path / "b")
    told: list[str] = []

    def tell(sentence: str) -> None:
        told.append(sentence)
        threading.Timer(0.7, holder.stdin.close).start()  # type: ignore[union-attr]

    with folder_locks([tmp_path / "b"], wait=True, tell=tell) as waited:
        assert holder.wait(10) == 0
        assert waited
    assert len(told) == 1
    assert told[0].startswith(f"waiting for {tmp_path / 'b'}: it is being worked on by process")
    assert names(tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path, hold: Hold, kind: str) -> None:
    holder = hold(tmp_path / "out")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert names(tmp_path) == [f".out.{kind}"]
    with folder_locks([tmp_path / "out"], wait=False, tell=nobody):
        assert f'"pid": {os.getpid()}' in (tmp_path / f".out.{kind}").read_text()
    assert names(tmp_path) == []


def test_two_threads_are_two_builds(tmp_path: Path, kind: str) -> None:
    inside: list[int] = []

    def work(number: int) -> None:
        with folder_locks([tmp_path / "b", tmp_path / "a"], wait=True, tell=lambda _: None):
            inside.append(number)
            time.sleep(0.01)
            assert inside.pop() == number
            assert not inside

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert names(tmp_path) == [], kind


def test_all_take_locks_in_one_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    monkeypatch.setattr(folder_lock, "_take", lambda folder, *_, **__: taken.append(folder.name))
    (tmp_path / "link").symlink_to("c")
    with folder_locks([tmp_path / n for n in ("c", "a", "link", "b")], wait=True, tell=nobody):
        pass
    assert taken == ["a", "b", "c"]


def test_an_interrupt_ends_the_wait_and_lets_go_of_what_was_held(
    tmp_path: Path, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(tmp_path / "b")

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    with (
        pytest.raises(KeyboardInterrupt),
        folder_locks([tmp_path / "a", tmp_path / "b"], wait=True, tell=nobody),
    ):
        pytest.fail("it is held")
    assert [n for n in names(tmp_path) if n.startswith(".a")] == []


def test_one_folder_under_two_names_is_locked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where the file system takes Phone and phone for one.
    monkeypatch.setattr(folder_lock, "lock_file", lambda folder: folder.with_name(".same.lock"))
    with folder_locks([tmp_path / "Phone", tmp_path / "phone"], wait=False, tell=nobody):
        pass


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_where_nothing_can_be_written_nothing_is_locked(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with folder_locks([tmp_path / "out"], wait=False, tell=nobody):
            assert names(tmp_path) == []
    finally:
        tmp_path.chmod(0o755)


def test_a_file_in_the_way_of_the_folder_is_left_to_publishing(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with folder_locks([tmp_path / "out" / "phone"], wait=False, tell=nobody):
        pass
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no such file system")
def test_a_folder_that_can_never_be_made_is_left_to_publishing() -> None:
    with folder_locks([Path("/proc/nowhere/phone")], wait=False, tell=nobody):
        pass


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
@pytest.mark.parametrize("thing", ["link", "folder", "fifo"])
def test_what_is_no_file_is_refused(tmp_path: Path, thing: str) -> None:
    path = lock_file(tmp_path / "out")
    if thing == "link":
        path.symlink_to("else")
    elif thing == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with (
        pytest.raises(ArtifactError, match="a file is expected, but this name is not one"),
        folder_locks([tmp_path / "out"], wait=False, tell=nobody),
    ):
        pytest.fail("nothing is locked")
    assert not (tmp_path / "else").exists()


def test_a_file_with_another_name_too_keeps_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    lock_file(tmp_path / "out").hardlink_to(tmp_path / "precious")
    with (
        pytest.raises(ArtifactError, match="has another hard link"),
        folder_locks([tmp_path / "out"], wait=False, tell=nobody),
    ):
        pytest.fail("nothing is locked")
    assert (tmp_path / "precious").read_text() == "precious"
    assert lock_file(tmp_path / "out").exists()


def test_where_files_cannot_be_made_nothing_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "open", read_only)
    with folder_locks([tmp_path / "out"], wait=False, tell=nobody) as waited:
        assert not waited
        assert names(tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such rights")
def test_what_another_user_s_killed_build_left_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = lock_file(tmp_path / "out")
    left.write_text("left")
    old, opened = left.stat().st_ino, os.open

    def not_to_write(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR and left.exists() and left.stat().st_ino == old:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", not_to_write)
    with folder_locks([tmp_path / "out"], wait=False, tell=nobody):
        assert f'"pid": {os.getpid()}' in left.read_text()
    assert names(tmp_path) == []


def test_too_many_open_files_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", full)
    with (
        pytest.raises(ArtifactError, match="Too many open files"),
        folder_locks([tmp_path / "out"], wait=False, tell=nobody),
    ):
        pytest.fail("nothing is locked")


def test_a_name_as_long_as_the_system_allows_has_a_lock_too(tmp_path: Path) -> None:
    with folder_locks([tmp_path / ("x" * 255)], wait=False, tell=nobody):
        assert len(names(tmp_path)) == 1


def test_a_claim_of_another_machine_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lock, "try_lock", lambda _: None)
    monkeypatch.setattr(folder_lock, "_host", lambda: "other")
    (tmp_path / ".out.claim").write_bytes(this_process().as_bytes())
    monkeypatch.undo()
    monkeypatch.setattr(folder_lock, "try_lock", lambda _: None)
    with (
        pytest.raises(ArtifactError, match="on other since"),
        folder_locks([tmp_path / "out"], wait=False, tell=nobody),
    ):
        pytest.fail("it is held")


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 4000, b'{"pid": 1}', b'{"pid": true}'])
def test_a_claim_that_says_nothing_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    monkeypatch.setattr(folder_lock, "try_lock", lambda _: None)
    (tmp_path / ".out.claim").write_bytes(text)
    with (
        pytest.raises(ArtifactError, match="by another process"),
        folder_locks([tmp_path / "out"], wait=False, tell=nobody),
    ):
        pytest.fail("it is held")


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
@pytest.mark.parametrize("thing", ["link", "folder", "fifo"])
def test_a_claim_that_is_no_file_is_neither_followed_nor_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thing: str
) -> None:
    monkeypatch.setattr(folder_lock, "try_lock", lambda _: None)
    secret = tmp_path / "else"
    secret.write_bytes(this_process().as_bytes())
    path = tmp_path / ".out.claim"
    if thing == "link":
        path.symlink_to(secret)
    elif thing == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with (
        pytest.raises(ArtifactError, match="a file is expected, but this name is not one"),
        folder_locks([tmp_path / "out"], wait=False, tell=nobody),
    ):
        pytest.fail("it is held")
