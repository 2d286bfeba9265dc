"""Locks of output directories and of the cache, between processes and within one."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mobileprep.building.pipeline import locks
from mobileprep.building.pipeline.locks import alone, folder_locks, remove_folder, share, try_lock
from mobileprep.errors import ArtifactError

HOLD = """
import sys
from pathlib import Path
from mobileprep.building.pipeline import locks
with locks.folder_locks([Path(p) for p in sys.argv[1:]], wait=True, tell=print):
    print("held", flush=True)
    sys.stdin.read()
"""
Hold = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Starts processes that hold folders until their input is closed."""
    started: list[subprocess.Popen[str]] = []

    def start(*folders: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, *map(str, folders)],
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
    return sorted(p.name for p in folder.rglob(".*"))


def nobody(sentence: str) -> None:
    pytest.fail(sentence)


def test_lock_file_exists_next_to_its_directory(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "digits" / "phone"
    with folder_locks([folder], wait=False, tell=nobody):
        assert names(tmp_path / "out" / "digits") == [".phone.lock"]
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
def test_lock_of_a_killed_process_is_acquired(tmp_path: Path, hold: Hold) -> None:
    holder = hold(tmp_path / "out")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert names(tmp_path) == [".out.lock"]
    with folder_locks([tmp_path / "out"], wait=False, tell=nobody):
        assert f"process {os.getpid()} on" in (tmp_path / ".out.lock").read_text()
    assert names(tmp_path) == []


def test_two_threads_are_two_builds(tmp_path: Path) -> None:
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
    assert names(tmp_path) == []


def test_interrupt_ends_the_wait_and_releases_locks(
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
    monkeypatch.setattr(locks, "lock_file", lambda folder: folder.with_name(".same.lock"))
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


def test_file_in_place_of_the_parent_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with folder_locks([tmp_path / "out" / "phone"], wait=False, tell=nobody):
        pass
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no such file system")
def test_impossible_directory_is_ignored() -> None:
    with folder_locks([Path("/proc/nowhere/phone")], wait=False, tell=nobody):
        pass


def test_read_only_file_system_is_not_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "open", read_only)
    with folder_locks([tmp_path / "out"], wait=False, tell=nobody) as waited:
        assert not waited
        assert names(tmp_path) == []


def test_too_many_open_files_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", full)
    with (
        pytest.raises(ArtifactError, match="Too many open files"),
        folder_locks([tmp_path / "out"], wait=False, tell=nobody),
    ):
        pytest.fail("nothing is locked")


def test_locks_are_acquired_in_one_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = os.open

    def noting(path: Path, *arguments: int) -> int:
        opened.append(Path(path).name)
        return real(path, *arguments)

    monkeypatch.setattr(os, "open", noting)
    (tmp_path / "link").symlink_to("c")
    with folder_locks([tmp_path / n for n in ("c", "a", "link", "b")], wait=True, tell=nobody):
        assert opened == [".a.lock", ".b.lock", ".c.lock"]


def test_read_only_lock_file_of_another_user_is_locked(
    tmp_path: Path, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(tmp_path / "out")
    real = os.open

    def open_for_reading(path: Path, flags: int, *mode: int) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags, *mode)

    monkeypatch.setattr(os, "open", open_for_reading)
    with (
        pytest.raises(ArtifactError, match="it is being worked on by process"),
        folder_locks([tmp_path / "out"], wait=False, tell=nobody),
    ):
        pytest.fail("it is held")


def test_without_locks_of_the_system_builds_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "try_lock", lambda *_, **__: None)
    with (
        folder_locks([tmp_path / "out"], wait=False, tell=nobody),
        folder_locks([tmp_path / "out"], wait=False, tell=nobody),
        alone(tmp_path, wait=False, tell=nobody),
    ):
        share(tmp_path)()


def test_a_lock_file_of_others_is_printed_safely(tmp_path: Path, hold: Hold) -> None:
    hold(tmp_path / "out")
    (tmp_path / ".out.lock").write_bytes(b"process 7 on a\x1b[2Jb\xff" + b"x" * 900)
    with (
        pytest.raises(ArtifactError, match=r"process 7 on a\?\[2Jb.x{370}") as raised,
        folder_locks([tmp_path / "out"], wait=False, tell=nobody),
    ):
        pytest.fail("it is held")
    assert len(raised.value.message) < 500


def test_values_of_variables_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/a/mobileprep", "build", "--set", "KEY=secret", "--set=A=b"])
    with folder_locks([tmp_path / "out"], wait=False, tell=nobody):
        content = (tmp_path / ".out.lock").read_text()
    assert content.endswith("(mobileprep build --set KEY=... --set=...)\n")


def test_a_file_that_is_open_twice_is_locked_once(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert try_lock(first) is True
    assert try_lock(second) is False
    os.close(first)
    assert try_lock(second) is True
    os.close(second)


def test_an_error_of_the_system_differs_from_a_held_lock() -> None:
    assert try_lock(987654) is None


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
    (tmp_path / "measured").write_text("")
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


def test_files_written_during_removal_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.unlink

    def unlinking(path: Path, *, missing_ok: bool = False) -> None:
        real(path, missing_ok=missing_ok)
        path.with_name("mine").write_text("of a build")

    monkeypatch.setattr(Path, "unlink", unlinking)
    with alone(tmp_path, wait=True, tell=nobody):
        remove_folder(tmp_path)
    assert (tmp_path / "mine").read_text() == "of a build"


def test_cache_without_a_directory_is_not_locked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    share(tmp_path / "file")()
    with alone(tmp_path / "file", wait=False, tell=nobody):
        assert (tmp_path / "file").read_text() == "mine"
