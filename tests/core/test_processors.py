"""Number of available processors."""

from __future__ import annotations

import os

import pytest

from mobileprep.core.parallel import cores


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
