"""How many processors there are to work with."""

from __future__ import annotations

import os

import pytest

from mobileprep.core.parallel import cores


def test_those_that_the_process_may_use_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {1, 5, 7}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert cores() == 3


@pytest.mark.parametrize(("found", "count"), [(8, 8), (None, 1)])
def test_where_the_system_does_not_tell_all_count(
    monkeypatch: pytest.MonkeyPatch, found: int | None, count: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: found)
    assert cores() == count
