"""When a store is tried again, and when it is left alone."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mobileprep.building.pipeline.remote import base, guarded
from mobileprep.building.pipeline.remote.base import RemoteError, Sink, TimeLeft
from mobileprep.building.pipeline.remote.guarded import Remote, Sharing
from mobileprep.building.pipeline.remote.settings import RemoteSettings
from mobileprep.core.files import sha256_bytes
from tests.building.pipeline.remote.transfers import Wanted, fetch_many, has_many

DATA = b"abc"
KEY = sha256_bytes(DATA)
KEYS = [f"{i:064x}" for i in range(20)]

pytestmark = pytest.mark.usefixtures("_hasty")


class Scripted:
    """A backend that does what it is told, call by call; then all is well."""

    def __init__(self, *faults: RemoteError | None) -> None:
        self.faults = list(faults)
        self.calls: list[str] = []
        self.wait: Callable[[], None] = lambda: None

    def _act(self, call: str) -> None:
        self.calls.append(call)
        self.wait()
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault

    def read(self, name: str, sink: Sink) -> bool:
        self._act(f"read {name[:2]}")
        sink.write(DATA)
        return True

    def has(self, name: str, size: int | None, left: TimeLeft) -> bool:
        self._act("has")
        return False

    def write(self, name: str, source: Path, left: TimeLeft) -> None:
        self._act(f"write {name[:2]}")


def remote_over(backend: Scripted) -> Remote:
    return Remote(RemoteSettings("http://store"), lambda: backend)


def test_temporary_failure_is_retried_three_times() -> None:
    backend = Scripted(*[RemoteError("is busy", again=True)] * 2)
    remote = remote_over(backend)
    remote.has("ac", KEY)
    assert backend.calls == ["has"] * 3
    assert remote.warnings == ()
    backend.faults = [RemoteError("is busy", again=True)] * 3
    remote.has("ac", KEY)
    assert remote.warnings == ("the remote store http://store is busy",)


def test_three_failures_in_a_row_end_it(tmp_path: Path) -> None:
    fault = RemoteError("fails")
    backend = Scripted(fault, fault, None, fault, fault, fault)
    remote = remote_over(backend)
    done = [remote.fetch("ac", KEY, tmp_path / "t", limit=9) for _ in range(8)]
    assert done == [False, False, True, False, False, False, False, False]
    assert len(backend.calls) == 6
    assert remote.warnings == (
        "the remote store http://store fails",
        "the remote store http://store fails; building without it",
    )


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which stands still unless it is changed."""
    time = [0.0]
    monkeypatch.setattr(guarded.time, "monotonic", lambda: time[0])
    return time


def taking(seconds: Iterator[float], now: list[float]) -> Callable[[], None]:
    """Each call takes the next of some times."""
    return lambda: now.__setitem__(0, now[0] + next(seconds))


def test_failures_that_cost_too_long_end_it(now: list[float]) -> None:
    backend = Scripted(*[RemoteError("is too slow"), None] * 9)
    backend.wait = taking(itertools.cycle([11.0, 0.0]), now)
    remote = remote_over(backend)
    for _ in range(9):
        remote.has("ac", KEY)
    assert len(backend.calls) == 3
    assert remote.warnings[-1].endswith("building without it")


def test_slow_operation_is_not_retried(now: list[float]) -> None:
    """As a name that is looked up in vain, for which there is no time-out."""
    backend = Scripted(*[RemoteError("cannot be reached", again=True)] * 9)
    backend.wait = taking(itertools.repeat(15.0), now)
    remote = remote_over(backend)
    assert not remote.has("ac", KEY)
    assert backend.calls == ["has"] * 2
    assert remote.warnings == (
        "the remote store http://store cannot be reached; building without it",
    )


def test_right_answers_that_take_too_long_end_it_with_one_warning(
    now: list[float], tmp_path: Path
) -> None:
    (tmp_path / "source").write_bytes(DATA)
    backend = Scripted()
    backend.wait = taking(itertools.repeat(2.5), now)
    remote = remote_over(backend)
    done = [remote.send("ac", KEY, tmp_path / "source") for _ in range(20)]
    assert done == [True] * 11 + [False] * 9
    assert not remote.fetch("ac", KEY, tmp_path / "t", limit=9)
    assert remote.warnings == ("the remote store http://store is too slow; building without it",)


def test_quick_answers_and_times_that_bytes_need_cost_nothing(
    now: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_LEAST_RATE", 1)
    monkeypatch.setattr(base, "SILENT_SECONDS", 10.0)
    backend = Scripted()
    remote = remote_over(backend)
    backend.wait = taking(itertools.repeat(0.5), now)
    assert not any(remote.has("ac", KEY) for _ in range(200))
    backend.wait = taking(itertools.repeat(0.5 + len(DATA)), now)
    assert all(remote.fetch("ac", KEY, tmp_path / "t", limit=9) for _ in range(200))
    assert len(backend.calls) == 400
    assert remote.warnings == ()


def test_concurrent_lost_time_counts_once(now: list[float]) -> None:
    backend = Scripted()
    remote = remote_over(backend)
    all_asked = threading.Barrier(8, action=lambda: now.__setitem__(0, 10.0))
    backend.wait = lambda: bool(all_asked.wait()) and None
    has_many(remote, [("ac", key) for key in KEYS[:8]])
    backend.wait = lambda: None
    remote.has("ac", KEY)
    assert len(backend.calls) == 9
    assert remote.warnings == ()


def test_failures_of_threads_are_reported_once(tmp_path: Path) -> None:
    remote = remote_over(Scripted(*[RemoteError("fails", ends="all")] * 99))
    asked = [Wanted("cas", key, tmp_path / key, 9) for key in KEYS]
    assert fetch_many(remote, asked) == [False] * len(KEYS)
    assert remote.warnings == ("the remote store http://store fails; building without it",)


def test_records_go_after_the_objects_that_they_name(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(DATA)
    backend = Scripted()
    sharing = Sharing(remote_over(backend), tmp_path)
    sharing.send(KEY, tmp_path / "source", [(key, tmp_path / "source") for key in KEYS])
    sharing.finish()
    assert backend.calls[-1] == "write ac"
    assert len(backend.calls) == 2 * len(KEYS) + 1


def test_no_record_goes_where_an_object_did_not(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(DATA)
    backend = Scripted(None, RemoteError("fails"))
    sharing = Sharing(remote_over(backend), tmp_path)
    sharing.send(KEY, tmp_path / "source", [(KEY, tmp_path / "source")])
    sharing.finish()
    assert backend.calls == ["has", "write ca"]
