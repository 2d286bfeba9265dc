"""Work shared by threads."""

from __future__ import annotations

import os
import threading

import pytest

from mobileprep.core.parallel import at_once, cores


def test_interrupt_does_not_wait_for_running_work() -> None:
    started, released, ended = threading.Event(), threading.Event(), threading.Event()

    def work(is_interrupted: bool) -> None:
        if is_interrupted:
            started.wait(30)
            raise KeyboardInterrupt
        started.set()
        released.wait(30)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        at_once(work, [True, False], 2)
    assert not ended.is_set()
    released.set()


def test_error_waits_for_running_work() -> None:
    started, ended = threading.Event(), threading.Event()

    def work(fails: bool) -> None:
        if fails:
            started.wait(30)
            raise LookupError
        started.set()
        ended.set()

    with pytest.raises(LookupError):
        at_once(work, [True, False], 2)
    assert ended.is_set()


def test_cores_respect_the_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {1, 5, 7}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert cores() == 3


@pytest.mark.parametrize(("cpu_count", "expected"), [(8, 8), (None, 1)])
def test_cores_without_affinity_are_all_cpus(
    monkeypatch: pytest.MonkeyPatch, cpu_count: int | None, expected: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: cpu_count)
    assert cores() == expected
