"""Free memory is given back where the C library can be asked to."""

from __future__ import annotations

import ctypes

import pytest

from mobileprep.building.pipeline import execute
from mobileprep.building.pipeline.execute import return_free_memory


class Library:
    """A C library that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def malloc_trim(self, pad: int) -> None:
        self.asked.append(pad)


def test_all_is_asked_for_on_linux_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: library)
    monkeypatch.setattr(execute.sys, "platform", "linux")
    return_free_memory()
    assert library.asked == [0]
    monkeypatch.setattr(execute.sys, "platform", "darwin")
    return_free_memory()
    assert library.asked == [0]


def test_library_without_malloc_trim_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    monkeypatch.setattr(ctypes, "CDLL", opened.append)
    monkeypatch.setattr(execute.sys, "platform", "linux")
    return_free_memory()
    assert opened == [None]
